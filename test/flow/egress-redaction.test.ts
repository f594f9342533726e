import { describe, expect, test } from 'bun:test';
import { brotliCompressSync, deflateSync, gzipSync, zstdCompressSync } from 'node:zlib';
import { type Handler, type OriginSpec, openRig, type Peer, secret } from '../support/origin.ts';

const host = 'api.allowed.test';
const { placeholder, value } = secret();

interface Answer {
  readonly head: string;
  readonly body: string;
}

/** One answer, its chunks joined. */
async function ask(peer: Peer, headers = '', method = 'GET'): Promise<Answer> {
  peer.clear();
  peer.send(`${method} / HTTP/1.1\r\nHost: ${host}\r\n${headers}\r\n`);
  const all = await peer.until((text) => {
    const end = text.indexOf('\r\n\r\n');
    if (end < 0) return false;
    const head = text.slice(0, end);
    const length = /content-length: (\d+)/i.exec(head);
    if (method === 'HEAD' || / (204|304) /.test(head.slice(0, 20))) return true;
    if (/transfer-encoding: chunked/i.test(head))
      return /(?:^|\r\n)0\r\n(?:[^\r\n]+\r\n)*\r\n$/.test(text.slice(end + 4));
    return length !== null && text.length >= end + 4 + Number(length[1]);
  });
  const end = all.indexOf('\r\n\r\n');
  const head = all.slice(0, end);
  const raw = all.slice(end + 4);
  return { head, body: /transfer-encoding: chunked/i.test(head) ? unchunked(raw) : raw };
}

function unchunked(raw: string): string {
  let body = '';
  for (let at = 0; ; ) {
    const lineEnd = raw.indexOf('\r\n', at);
    const size = Number.parseInt(raw.slice(at, lineEnd), 16);
    if (!(size > 0)) return body + raw.slice(lineEnd + 2).replace(/\r\n$/, '');
    body += raw.slice(lineEnd + 2, lineEnd + 2 + size);
    at = lineEnd + 2 + size + 2;
  }
}

const rigWith = (handler: Handler, over: Partial<OriginSpec> = {}) =>
  openRig({ origins: [{ host, handler, ...over }], secrets: [secret()] });

/** An origin on plain TCP that answers every request with these bytes; a value may have come to it over TLS before. */
const rigWithBytes = (answer: string) =>
  openRig({
    origins: [{ host, plain: true, onSocket: (socket) => socket.on('data', () => socket.write(answer, 'latin1')) }],
    secrets: [secret()],
  });

async function plainPeer(rig: Awaited<ReturnType<typeof rigWithBytes>>): Promise<Peer> {
  const peer = await rig.connect();
  peer.send(`CONNECT ${host}:80 HTTP/1.1\r\nHost: ${host}:80\r\n\r\n`);
  await peer.until('\r\n\r\n');
  return peer;
}

describe('heads', () => {
  test('reason phrase, every header and the trailers are shown without the value, and 1xx heads are not shown', async () => {
    const basic = (text: string) => Buffer.from(`some user:${text}`).toString('base64');
    await using rig = await rigWithBytes(
      `HTTP/1.1 103 Early Hints\r\nLink: ${value}\r\n\r\n` +
        `HTTP/1.1 200 Fine ${value}\r\nSet-Cookie: a=${value}\r\nSet-Cookie: b=${value}; Path=/\r\n` +
        `Location: https://x.test/?k=${encodeURIComponent(value)}\r\nX-Basic: ${basic(value)}\r\n` +
        `Transfer-Encoding: chunked\r\nTrailer: X-End, Digest\r\n\r\n2\r\nok\r\n0\r\nX-End: ${value}\r\nDigest: sha-256=x\r\n\r\n`,
    );
    const peer = await plainPeer(rig);
    const { head, body } = await ask(peer);
    expect(head.split('\r\n')).toEqual([
      `HTTP/1.1 200 Fine ${placeholder}`,
      `Set-Cookie: a=${placeholder}`,
      `Set-Cookie: b=${placeholder}; Path=/`,
      `Location: https://x.test/?k=${placeholder}`,
      `X-Basic: ${basic(placeholder)}`,
      'Trailer: X-End, Digest',
      'Transfer-Encoding: chunked',
    ]);
    expect(body).toBe(`okX-End: ${placeholder}\r\n`);
    expect((await ask(peer)).body).toStartWith('ok');
  });
});

describe('compressed answers', () => {
  const text = `${'before '.repeat(500)}${value}${' after'.repeat(500)} ${Buffer.from(`u:${value}`).toString('base64')}`;
  const codings = { gzip: gzipSync, deflate: deflateSync, br: brotliCompressSync, zstd: zstdCompressSync };

  for (const [coding, pack] of Object.entries(codings)) {
    test(`${coding} is taken off although it was not asked for, and the connections go on`, async () => {
      let asked: unknown;
      await using rig = await rigWith((request, response) => {
        asked = request.headers['accept-encoding'];
        const packed = pack(text);
        response.setHeader('content-encoding', coding).setHeader('content-length', packed.length);
        response.setHeader('etag', '"x"').setHeader('content-md5', 'sum').setHeader('digest', 'sum');
        response.end(packed);
      });
      const peer = await rig.tunnel(host);
      for (let round = 0; round < 2; round++) {
        const { head, body } = await ask(peer, 'Accept-Encoding: gzip, br\r\n');
        expect(body).toBe(
          text.replace(value, placeholder).replace(/\S+$/, Buffer.from(`u:${placeholder}`).toString('base64')),
        );
        expect(head).not.toMatch(/content-encoding|content-length|content-md5|digest/i);
        expect(head).toMatch(/etag: W\/"x"/i);
      }
      expect(asked).toBe('identity');
      expect(rig.accepted()).toBe(1);
    });
  }

  test('server-sent events in gzip arrive one by one', async () => {
    let proceed = Promise.withResolvers<void>();
    await using rig = await rigWith(async (_, response) => {
      const { createGzip } = await import('node:zlib');
      const packer = createGzip();
      response.setHeader('content-encoding', 'gzip').setHeader('content-type', 'text/event-stream');
      packer.on('data', (packed: Buffer) => void response.write(packed));
      for (const event of ['one', value, 'three']) {
        packer.write(`data: ${event}\n\n`);
        packer.flush();
        await proceed.promise;
        proceed = Promise.withResolvers();
      }
      packer.on('end', () => response.end());
      packer.end();
    });
    const peer = await rig.tunnel(host);
    peer.send(`GET / HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
    await peer.until('data: one\n\n');
    proceed.resolve();
    expect(await peer.until(`data: ${placeholder}\n\n`)).not.toContain('three');
    proceed.resolve();
    await peer.until('data: three\n\n');
    proceed.resolve();
    expect(await peer.until('\r\n0\r\n\r\n')).not.toContain(value);
  });

  test('answers without a body say nothing that is not so of the one that would come', async () => {
    await using rig = await rigWith((request, response) => {
      response.setHeader('content-encoding', 'gzip').setHeader('etag', '"x"');
      if (request.method === 'HEAD') response.setHeader('content-length', 1000);
      else if (request.headers['if-none-match']) response.statusCode = 304;
      else response.setHeader('content-length', 0);
      response.end();
    });
    const peer = await rig.tunnel(host);
    expect((await ask(peer, '', 'HEAD')).head).not.toMatch(/content-(length|encoding)|connection: close/i);
    expect((await ask(peer, 'If-None-Match: W/"x"\r\n')).head).toMatch(/^HTTP\/1.1 304 .*etag: W\/"x"/is);
    expect((await ask(peer)).head).toMatch(/content-length: 0/i);
    expect((await ask(peer, '', 'HEAD')).head).toStartWith('HTTP/1.1 200 ');
  });

  for (const [what, status, coding] of [
    ['a coding that is not known', 200, 'compress'],
    ['a part of a packed whole', 206, 'gzip'],
  ] as const) {
    test(`${what} is a 502 with the reason, and the connection goes on`, async () => {
      await using rig = await rigWith((request, response) => {
        if (request.headers['x-plain']) response.setHeader('content-length', 2).end('ok');
        else response.writeHead(status, { 'content-encoding': coding, 'content-length': value.length }).end(value);
      });
      const peer = await rig.tunnel(host);
      const { head, body } = await ask(peer);
      expect(head).toStartWith('HTTP/1.1 502 ');
      expect(body).toContain('cannot be searched for values of secrets');
      expect((await ask(peer, 'X-Plain: 1\r\n')).body).toBe('ok');
      expect(await rig.recorded(2)).toMatchObject([
        { status: 502, reason: expect.stringContaining(host) },
        { status: 200 },
      ]);
    });
  }

  for (const [what, bytes] of Object.entries({
    'is not what it says': Buffer.from(value),
    'breaks off': gzipSync(value).subarray(0, -4),
  })) {
    test(`a body that ${what} ends the connection before its end, and the value is not shown`, async () => {
      await using rig = await rigWith((_, response) => {
        response.setHeader('content-encoding', 'gzip').setHeader('content-length', bytes.length).end(bytes);
      });
      const peer = await rig.tunnel(host);
      peer.send(`GET / HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
      const all = await peer.end();
      expect(all).not.toContain(value);
      expect(all).not.toContain('\r\n0\r\n');
      expect(await rig.recorded(1)).toMatchObject([{ reason: expect.stringContaining('not what its headers say') }]);
    });
  }
});

describe('what is searched', () => {
  test('a range is not asked for where a value could be cut in two, and is elsewhere', async () => {
    const seen: unknown[] = [];
    const handler: Handler = (request, response) => {
      seen.push(request.headers.range);
      response.setHeader('content-length', 2).end('ok');
    };
    await using rig = await openRig({
      origins: [
        { host, handler },
        { host: 'other.test', handler },
      ],
      secrets: [secret()],
    });
    await ask(await rig.tunnel(host), 'Range: bytes=0-10\r\nIf-Range: "x"\r\n');
    const other = await rig.tunnel('other.test');
    other.send('GET / HTTP/1.1\r\nHost: other.test\r\nRange: bytes=0-10\r\n\r\n');
    await other.until('ok');
    expect(seen).toEqual([undefined, 'bytes=0-10']);
  });

  test('an answer over plain HTTP of a host that may have the value over TLS', async () => {
    await using rig = await rigWithBytes(`HTTP/1.1 200 OK\r\nContent-Length: ${value.length}\r\n\r\n${value}`);
    expect((await ask(await plainPeer(rig))).body).toBe(placeholder);
  });

  test('not the answer of a host that no secret is allowed for', async () => {
    await using rig = await openRig({
      origins: [{ host, handler: (_, response) => void response.setHeader('content-length', value.length).end(value) }],
      secrets: [secret({ allowedHosts: ['x.test'] })],
    });
    expect((await ask(await rig.tunnel(host))).body).toBe(value);
  });
});
