import { expect, test } from 'bun:test';
import { decoderFor, encoderFor } from '../../src/egress/body.ts';
import {
  BadMessage,
  parseRequestHead,
  parseResponseHead,
  readHead,
  requestFraming,
  responseFraming,
} from '../../src/egress/http1.ts';
import { Wire } from '../../src/egress/wire.ts';

const deaf = { write: (bytes: Uint8Array) => bytes.length, end() {}, terminate() {}, pause() {}, resume() {} };

const head = 'POST /a?b=1 HTTP/1.1\r\nHost: h.test\r\nX-A:  spaced \t\r\nx-a:\r\nTransfer-Encoding: Chunked';

test('a head is read the same whole and byte by byte, and what follows stays unread', async () => {
  const whole = new Wire(deaf);
  whole.receive(Buffer.from(`${head}\r\n\r\nrest`));
  expect(await readHead(whole)).toBe(head);
  expect(whole.take()?.toString()).toBe('rest');
  const dribbled = new Wire(deaf);
  const reading = readHead(dribbled);
  for (const byte of Buffer.from(`${head}\r\n\r\n`)) dribbled.receive(Buffer.from([byte]));
  expect(await reading).toBe(head);
});

test('a lone line feed is refused as soon as it is there, and a cut head when it is cut', async () => {
  const wire = new Wire(deaf);
  wire.receive(Buffer.from('GET / HTTP/1.1\n'));
  await expect(readHead(wire)).rejects.toThrow(BadMessage);
  const cut = new Wire(deaf);
  cut.receive(Buffer.from('GET / HT'));
  cut.finish();
  await expect(readHead(cut)).rejects.toThrow(BadMessage);
  const empty = new Wire(deaf);
  empty.finish();
  expect(await readHead(empty)).toBeNull();
});

test('headers keep spelling, order and repetition', () => {
  expect(parseRequestHead(head)).toMatchObject({
    method: 'POST',
    target: '/a?b=1',
    version: '1.1',
    headers: [
      ['Host', 'h.test'],
      ['X-A', 'spaced'],
      ['x-a', ''],
      ['Transfer-Encoding', 'Chunked'],
    ],
  });
  expect(requestFraming(parseRequestHead(head))).toEqual({ kind: 'chunked' });
});

test.each([
  ['HEAD', 'HTTP/1.1 200 OK\r\nContent-Length: 5', 'none'],
  ['GET', 'HTTP/1.1 204 No Content', 'none'],
  ['GET', 'HTTP/1.1 304 Not Modified\r\nContent-Length: 5', 'none'],
  ['GET', 'HTTP/1.1 200\r\nContent-Length: 5', 'length'],
  ['GET', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked', 'chunked'],
  ['GET', 'HTTP/1.0 200 OK', 'close'],
] as const)('the body of an answer to %s with %p ends by %s', (method, text, kind) => {
  expect(responseFraming(parseResponseHead(text), method).kind).toBe(kind);
});

const chunked = '5;ext="x"\r\nhello\r\n1\r\n \r\n00a\r\nchunked!!!\r\n0\r\nX-T: 1\r\n\r\n';

test('chunks are decoded the same whole and byte by byte', () => {
  for (const size of [chunked.length, 1, 3]) {
    const decoder = decoderFor({ kind: 'chunked' });
    let text = '';
    for (let at = 0; at < chunked.length; at += size) {
      decoder.feed(Buffer.from(chunked.slice(at, at + size)), (data) => {
        text += data.toString();
      });
    }
    expect(text).toBe('hello chunked!!!');
    expect(decoder.done).toBe(true);
    expect(decoder.trailers).toEqual([['X-T', '1']]);
  }
});

test('a decoder takes its own body and leaves the next request alone', () => {
  const next = 'GET / HTTP/1.1';
  expect(decoderFor({ kind: 'chunked' }).feed(Buffer.from(chunked + next), () => {})).toBe(chunked.length);
  expect(decoderFor({ kind: 'length', length: 3 }).feed(Buffer.from(`abc${next}`), () => {})).toBe(3);
});

test.each([
  'g\r\n',
  '-1\r\n',
  '0x1\r\n',
  ' 1\r\n',
  '1 2\r\n',
  '1\n',
  '\r\n',
  `${'1'.repeat(13)}\r\n`,
  '1\r\nab\r\n',
  `1;${'x'.repeat(9000)}`,
])('the chunk framing %p is refused', (text) => {
  expect(() => decoderFor({ kind: 'chunked' }).feed(Buffer.from(text), () => {})).toThrow(BadMessage);
});

test('what is encoded is decoded again', () => {
  const encoder = encoderFor(true);
  const bytes = Buffer.concat([
    encoder.encode(Buffer.from('one')),
    encoder.encode(Buffer.alloc(0)),
    encoder.finish([['A', 'b']]),
  ]);
  expect(bytes.toString()).toBe('3\r\none\r\n0\r\nA: b\r\n\r\n');
});
