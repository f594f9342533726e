import { describe, expect, test } from 'bun:test';
import { demultiplex, joinLines } from '../../src/sandbox/docker-stream.ts';
import { maxLineBytes } from '../../src/sandbox/sandbox.ts';

const bytes = (text: string) => new TextEncoder().encode(text);

/** A frame as the engine sends it. */
function frame(stream: 1 | 2, content: Uint8Array): Uint8Array {
  const header = new Uint8Array(8);
  header[0] = stream;
  new DataView(header.buffer).setUint32(4, content.length);
  return Buffer.concat([header, content]);
}

/** The same bytes in pieces of so many. */
async function* inPieces(whole: Uint8Array, size: number): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < whole.length; at += size) yield whole.subarray(at, at + size);
}

const text = async (pieces: AsyncIterable<Uint8Array>) => Buffer.concat(await Array.fromAsync(pieces)).toString();

describe('frames of the engine', () => {
  const sent = Buffer.concat([
    frame(1, bytes('one ')),
    frame(2, bytes('trouble')),
    frame(1, bytes('')),
    frame(1, bytes('two')),
  ]);

  test('are taken apart wherever the pieces end', async () => {
    for (let size = 1; size <= sent.length; size++) {
      expect(await text(demultiplex(inPieces(sent, size), 'stdout'))).toBe('one two');
      expect(await text(demultiplex(inPieces(sent, size), 'stderr'))).toBe('trouble');
    }
  });

  test('over 64 KiB have a length of more than two bytes', async () => {
    const content = 'x'.repeat(70_000);
    expect(await text(demultiplex(inPieces(frame(1, bytes(content)), 4096), 'stdout'))).toBe(content);
  });
});

describe('lines of the relay', () => {
  const linesOf = (whole: Uint8Array, size = whole.length || 1) => Array.fromAsync(joinLines(inPieces(whole, size)));
  const whole = { cut: false, ended: true };

  test('are put together wherever the pieces end, characters of several bytes included', async () => {
    // The relay goes by bytes: the first piece ends within the euro sign.
    const euro = bytes('€');
    const sent = Buffer.concat([
      bytes('+a'),
      euro.subarray(0, 1),
      bytes('\n.'),
      euro.subarray(1),
      bytes('b\n.\n.last\n'),
    ]);
    for (let size = 1; size <= sent.length; size++) {
      expect(await linesOf(sent, size)).toEqual([
        { number: 1, text: 'a€b', ...whole },
        { number: 2, text: '', ...whole },
        { number: 3, text: 'last', ...whole },
      ]);
    }
  });

  test('without their end are told apart, so that they are not taken for whole while more may come', async () => {
    expect(await linesOf(bytes('.one\n.tw'))).toEqual([
      { number: 1, text: 'one', ...whole },
      { number: 2, text: 'tw', cut: false, ended: false },
    ]);
    expect(await linesOf(bytes('+begun\n'))).toMatchObject([{ text: 'begun', ended: false }]);
  });

  test('at the end of the stream are whole without a line end', async () => {
    expect(await linesOf(bytes('.one\n!last\n'))).toMatchObject([{ text: 'one' }, { text: 'last', ended: true }]);
    expect(await linesOf(bytes(''))).toEqual([]);
  });

  test('over the limit are cut at a whole character, and the next one is whole', async () => {
    const most = maxLineBytes - 1;
    const sent = Buffer.concat([bytes('+'), Buffer.alloc(most, 'a'), bytes('\n.€€\n.next\n')]);
    const [long, next] = await linesOf(sent, 65_536);
    expect({ ...long, text: long?.text.length }).toEqual({ number: 1, text: most, cut: true, ended: true });
    expect(long?.text.endsWith('a')).toBe(true);
    expect(next).toEqual({ number: 2, text: 'next', ...whole });
  });

  test('of just the limit are not cut', async () => {
    const [line] = await linesOf(Buffer.concat([bytes('.'), Buffer.alloc(maxLineBytes, 'a'), bytes('\n')]), 65_536);
    expect([line?.text.length, line?.cut]).toEqual([maxLineBytes, false]);
  });
});
