import { describe, expect, test } from 'bun:test';
import { createHash } from 'node:crypto';
import { echo, openRig, type Peer, secret } from '../support/origin.ts';

const host = 'api.allowed.test';
const { placeholder, value } = secret();

/** The body of the answer that has arrived, by its Content-Length. */
async function answer(peer: Peer): Promise<{ head: string; body: string }> {
  const isWhole = (all: string) => {
    const end = all.indexOf('\r\n\r\n');
    const length = /content-length: (\d+)/i.exec(all.slice(0, end));
    if (end < 0) return false;
    return length ? all.length >= end + 4 + Number(length[1]) : all.endsWith('0\r\n\r\n');
  };
  const all = await peer.until(isWhole);
  const end = all.indexOf('\r\n\r\n');
  peer.clear();
  return { head: all.slice(0, end), body: all.slice(end + 4) };
}

/** An origin that keeps what it was sent apart from what it answers, so that redaction does not hide it. */
function witness() {
  const seen: { url: string; headers: Record<string, unknown>; body: string }[] = [];
  return {
    seen,
    handler: ((request, response) => {
      const parts: Buffer[] = [];
      request.on('data', (bytes: Buffer) => parts.push(bytes));
      request.on('end', () => {
        seen.push({ url: request.url ?? '', headers: request.headers, body: Buffer.concat(parts).toString('latin1') });
        response.setHeader('content-length', 2);
        response.end('ok');
      });
    }) satisfies import('../support/origin.ts').Handler,
  };
}

describe('substitution', () => {
  test('the value is put into headers, Basic credentials and the query, and the ledger names the secret', async () => {
    const { seen, handler } = witness();
    await using rig = await openRig({ origins: [{ host, handler }], secrets: [secret()] });
    const peer = await rig.tunnel(host);
    const basic = Buffer.from(`x-access-token:${placeholder}`).toString('base64');
    peer.send(
      `GET /a?key=${placeholder}&b=1 HTTP/1.1\r\nHost: ${host}\r\nAuthorization: Basic ${basic}\r\nX-Key: a ${placeholder} b\r\n\r\n`,
    );
    expect((await answer(peer)).head).toStartWith('HTTP/1.1 200 OK');
    expect(seen[0]?.url).toBe(`/a?key=${value}&b=1`);
    expect(seen[0]?.headers['x-key']).toBe(`a ${value} b`);
    expect(seen[0]?.headers.authorization).toBe(`Basic ${Buffer.from(`x-access-token:${value}`).toString('base64')}`);
    expect(await rig.recorded(1)).toMatchObject([
      {
        host,
        port: 443,
        method: 'GET',
        path: `/a?key=${placeholder}&b=1`,
        status: 200,
        bytesUp: 0,
        bytesDown: 2,
        secrets: ['API_KEY'],
        decision: 'allowed',
        reason: null,
      },
    ]);
  });

  test('path and body keep the placeholder, also towards an allowed host', async () => {
    const { seen, handler } = witness();
    await using rig = await openRig({ origins: [{ host, handler }], secrets: [secret()] });
    const peer = await rig.tunnel(host);
    peer.send(
      `POST /${placeholder} HTTP/1.1\r\nHost: ${host}\r\nContent-Length: ${placeholder.length}\r\n\r\n${placeholder}`,
    );
    await answer(peer);
    expect(seen[0]).toMatchObject({ url: `/${placeholder}`, body: placeholder });
    expect((await rig.recorded(1))[0]?.secrets).toEqual([]);
  });

  test('a head that arrives byte by byte is substituted just the same', async () => {
    const { seen, handler } = witness();
    await using rig = await openRig({ origins: [{ host, handler }], secrets: [secret()] });
    const peer = await rig.tunnel(host);
    for (const byte of Buffer.from(`GET / HTTP/1.1\r\nHost: ${host}\r\nX-Key: ${placeholder}\r\n\r\n`)) {
      peer.send(Buffer.from([byte]));
      await new Promise((resolve) => setImmediate(resolve));
    }
    await answer(peer);
    expect(seen[0]?.headers['x-key']).toBe(value);
  });

  test('a wildcard covers names below it, and a value in UTF-8 arrives as its bytes', async () => {
    const { seen, handler } = witness();
    const wild = secret({ allowedHosts: ['*.allowed.test'], value: 'geheim-ü-€-0000' });
    await using rig = await openRig({ origins: [{ host, handler }], secrets: [wild] });
    const peer = await rig.tunnel(host);
    peer.send(`GET /?k=${placeholder} HTTP/1.1\r\nHost: ${host}\r\nX-Key: ${placeholder}\r\n\r\n`);
    await answer(peer);
    expect(Buffer.from(String(seen[0]?.headers['x-key']), 'latin1').toString()).toBe('geheim-ü-€-0000');
    expect(seen[0]?.url).toBe(`/?k=${encodeURIComponent('geheim-ü-€-0000')}`);
  });
});

describe('redaction', () => {
  test('no form of the value that an allowed host echoes reaches the sandbox', async () => {
    const basic = Buffer.from(`u:${placeholder}`).toString('base64');
    const realBasic = Buffer.from(`u:${value}`).toString('base64');
    await using rig = await openRig({
      origins: [
        {
          host,
          handler(request, response) {
            response.setHeader('x-echo', String(request.headers['x-key']));
            response.setHeader('x-encoding', String(request.headers['accept-encoding']));
            echo(request, response);
          },
        },
      ],
      secrets: [secret()],
    });
    const peer = await rig.tunnel(host);
    peer.send(
      `GET /?k=${placeholder} HTTP/1.1\r\nHost: ${host}\r\nX-Key: ${placeholder}\r\nAccept-Encoding: gzip\r\nAuthorization: Basic ${basic}\r\n\r\n`,
    );
    const { head, body } = await answer(peer);
    expect(head).toContain(`x-echo: ${placeholder}`);
    expect(head).toContain('x-encoding: identity');
    expect(JSON.parse(body)).toMatchObject({ url: `/?k=${placeholder}`, headers: { 'x-key': placeholder } });
    expect(head + body).not.toContain(value);
    expect(head + body).not.toContain(realBasic);
    expect(body).toContain(basic);
  });

  test('a value of another length is redacted in a chunked stream, wherever the pieces are cut', async () => {
    const long = secret({ value: `${value}-and-much-longer "quoted"` });
    await using rig = await openRig({
      origins: [
        {
          host,
          async handler(_, response) {
            const text = `before ${long.value} between ${JSON.stringify(long.value)} ${encodeURIComponent(long.value)} after`;
            for (const part of text.match(/.{1,5}/gs) ?? []) {
              response.write(part);
              await new Promise((resolve) => setImmediate(resolve));
            }
            response.end();
          },
        },
      ],
      secrets: [long],
    });
    const peer = await rig.tunnel(host);
    peer.send(`GET / HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`);
    const all = await peer.end();
    const chunks = all.slice(all.indexOf('\r\n\r\n') + 4);
    const body = chunks.replace(/(?:^|\r\n)([0-9a-f]+)\r\n/g, '').trimEnd();
    expect(body).toBe(`before ${placeholder} between "${placeholder}" ${placeholder} after`);
  });

  test('a body of known length stays so when value and placeholder are equally long', async () => {
    await using rig = await openRig({
      origins: [{ host, handler: (_, response) => void response.setHeader('content-length', value.length).end(value) }],
      secrets: [secret()],
    });
    const peer = await rig.tunnel(host);
    peer.send(`GET / HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
    expect(await answer(peer)).toEqual({
      head: expect.stringContaining(`Content-Length: ${value.length}`),
      body: placeholder,
    });
  });

  test('server-sent events arrive one by one while the stream stays open', async () => {
    let proceed = Promise.withResolvers<void>();
    await using rig = await openRig({
      origins: [
        {
          host,
          async handler(_, response) {
            response.setHeader('content-type', 'text/event-stream');
            response.write('data: one\n\n');
            await proceed.promise;
            proceed = Promise.withResolvers();
            response.write(`data: ${value}\n\n`);
            await proceed.promise;
            response.end('data: three\n\n');
          },
        },
      ],
      secrets: [secret()],
    });
    const peer = await rig.tunnel(host);
    peer.send(`GET / HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
    await peer.until('data: one\n\n');
    proceed.resolve();
    expect(await peer.until(`data: ${placeholder}\n\n`)).not.toContain('three');
    proceed.resolve();
    expect(await peer.until('data: three\n\n')).not.toContain(value);
  });
});

describe('HTTP', () => {
  test('one tunnel carries request after request, and the origin keeps its connection too', async () => {
    await using rig = await openRig({ origins: [{ host, handler: echo }] });
    for (let tunnel = 0; tunnel < 2; tunnel++) {
      const peer = await rig.tunnel(host);
      for (const path of ['/one', '/two']) {
        peer.send(`GET ${path} HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
        expect((await answer(peer)).body).toContain(path);
      }
    }
    expect(rig.accepted()).toBe(1);
    expect(rig.resolved.get(host)).toBe(1);
  });

  test('pipelined requests, bodies among them, are answered in their order', async () => {
    await using rig = await openRig({ origins: [{ host, handler: echo }] });
    const peer = await rig.tunnel(host);
    peer.send(
      `GET /a HTTP/1.1\r\nHost: ${host}\r\n\r\nPOST /b HTTP/1.1\r\nHost: ${host}\r\nContent-Length: 5\r\n\r\nhello` +
        `POST /c HTTP/1.1\r\nHost: ${host}\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nGET /d HTTP/1.1\r\nHost: ${host}\r\n\r\n`,
    );
    const all = await peer.until('"url":"/d"');
    expect([...all.matchAll(/"url":"(\/.)"/g)].map((match) => match[1])).toEqual(['/a', '/b', '/c', '/d']);
    expect(all).toContain('"body":"hello"');
    expect(all).toContain('"body":"abc"');
  });

  test('a client that expects 100-continue gets it, and only when the rules allow the request', async () => {
    await using rig = await openRig({
      origins: [{ host, handler: echo }],
      secrets: [secret({ allowedHosts: ['x.test'] })],
    });
    const peer = await rig.tunnel(host);
    const head = `POST / HTTP/1.1\r\nHost: ${host}\r\nContent-Length: 2\r\nExpect: 100-continue\r\n`;
    peer.send(`${head}\r\n`);
    expect(await peer.until('\r\n\r\n')).toBe('HTTP/1.1 100 Continue\r\n\r\n');
    peer.clear();
    peer.send('hi');
    expect((await answer(peer)).body).toContain('"body":"hi"');
    peer.send(`${head}X-Key: ${placeholder}\r\n\r\n`);
    expect(await peer.until('\r\n\r\n')).toStartWith('HTTP/1.1 403 ');
  });

  test('answers without a body (HEAD, 204, 304) leave the connection in step', async () => {
    await using rig = await openRig({
      origins: [
        {
          host,
          handler(request, response) {
            if (request.method === 'HEAD') response.setHeader('content-length', 1000);
            else response.statusCode = Number(request.url?.slice(1));
            response.end();
          },
        },
      ],
      secrets: [secret()],
    });
    const peer = await rig.tunnel(host);
    for (const [method, path, start] of [
      ['HEAD', '/', 'HTTP/1.1 200 '],
      ['GET', '/204', 'HTTP/1.1 204 '],
      ['GET', '/304', 'HTTP/1.1 304 '],
      ['HEAD', '/', 'HTTP/1.1 200 '],
    ]) {
      peer.send(`${method} ${path} HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
      const all = await peer.until('\r\n\r\n');
      expect(all).toStartWith(start ?? '');
      expect(all).toEndWith('\r\n\r\n');
      peer.clear();
    }
  });

  test('repeated headers keep their number, spelling and order', async () => {
    await using rig = await openRig({
      origins: [
        {
          host,
          handler(request, response) {
            response.setHeader('Set-Cookie', ['a=1', 'b=2']);
            const text = JSON.stringify(request.rawHeaders);
            response.setHeader('Content-Length', text.length);
            response.end(text);
          },
        },
      ],
    });
    const peer = await rig.tunnel(host);
    peer.send(
      `GET / HTTP/1.1\r\nHost: ${host}\r\nX-b: 1\r\nX-A: 2\r\nX-b: 3\r\nConnection: X-A\r\nProxy-Connection: keep-alive\r\n\r\n`,
    );
    const { head, body } = await answer(peer);
    expect(JSON.parse(body)).toEqual(['Host', host, 'X-b', '1', 'X-b', '3']);
    expect(head).toContain('Set-Cookie: a=1\r\nSet-Cookie: b=2');
  });

  test('a compressed answer of a host that no secret is allowed for passes byte for byte', async () => {
    const packed = Bun.gzipSync(Buffer.from('hello '.repeat(1000)));
    await using rig = await openRig({
      origins: [
        {
          host,
          handler: (_, response) =>
            void response.setHeader('content-encoding', 'gzip').setHeader('content-length', packed.length).end(packed),
        },
      ],
      secrets: [secret({ allowedHosts: ['x.test'] })],
    });
    const peer = await rig.tunnel(host);
    peer.send(`GET / HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
    expect(Buffer.from((await answer(peer)).body, 'latin1').equals(Buffer.from(packed))).toBe(true);
  });

  test('an answer that ends with its connection becomes chunked, and the tunnel goes on', async () => {
    await using rig = await openRig({
      origins: [
        {
          host: 'plain.test',
          plain: true,
          onSocket: (socket) => socket.once('data', () => socket.end('HTTP/1.0 200 OK\r\n\r\nto the end')),
        },
      ],
    });
    const peer = await rig.connect();
    for (let round = 0; round < 2; round++) {
      peer.send('GET http://plain.test/ HTTP/1.1\r\nHost: plain.test\r\n\r\n');
      expect((await answer(peer)).body).toBe('a\r\nto the end\r\n0\r\n\r\n');
    }
  });

  test('plain HTTP goes out in absolute form and inside a CONNECT to port 80', async () => {
    await using rig = await openRig({ origins: [{ host: 'plain.test', plain: true, handler: echo }] });
    const direct = await rig.connect();
    direct.send(
      'GET http://plain.test/direct?x=1 HTTP/1.1\r\nHost: plain.test\r\nProxy-Connection: keep-alive\r\n\r\n',
    );
    expect((await answer(direct)).body).toContain('"url":"/direct?x=1"');
    const inside = await rig.connect();
    inside.send('CONNECT plain.test:80 HTTP/1.1\r\nHost: plain.test:80\r\n\r\n');
    await inside.until('\r\n\r\n');
    inside.clear();
    inside.send('GET /inside HTTP/1.1\r\nHost: plain.test\r\n\r\n');
    expect((await answer(inside)).body).toContain('"url":"/inside"');
    expect(await rig.recorded(2)).toMatchObject([
      { host: 'plain.test', port: 80 },
      { host: 'plain.test', port: 80 },
    ]);
  });

  test('on a port that the settings open, the first byte decides between TLS and plain', async () => {
    const { seen, handler } = witness();
    await using rig = await openRig({
      origins: [
        { host, port: 8443, handler },
        { host: 'plain.test', port: 8080, plain: true, handler: echo },
      ],
      secrets: [secret()],
      allowPrivate: [`${host}:8443`, 'plain.test:8080'],
    });
    const secure = await rig.tunnel(host, { port: 8443 });
    for (let round = 0; round < 2; round++) {
      secure.send(`GET / HTTP/1.1\r\nHost: ${host}:8443\r\nX-Key: ${placeholder}\r\n\r\n`);
      await answer(secure);
    }
    expect(seen[1]?.headers['x-key']).toBe(value);
    const plain = await rig.connect();
    plain.send('CONNECT plain.test:8080 HTTP/1.1\r\n\r\n');
    await plain.until('\r\n\r\n');
    plain.clear();
    plain.send('GET /p HTTP/1.1\r\nHost: plain.test:8080\r\n\r\n');
    expect((await answer(plain)).body).toContain('"url":"/p"');
  });

  test('after a WebSocket handshake of a run without secrets both sides speak freely', async () => {
    let seenKey: unknown;
    await using rig = await openRig({
      origins: [
        {
          host,
          onUpgrade(request, socket) {
            seenKey = request.headers['x-key'];
            const accept = createHash('sha1')
              .update(`${request.headers['sec-websocket-key']}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`)
              .digest('base64');
            socket.write(
              `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\nX-Echo: ${request.headers['x-key']}\r\n\r\nfirst`,
            );
            socket.on('data', (bytes: Buffer) => socket.write(bytes.toString('latin1').toUpperCase()));
            socket.on('end', () => socket.end());
          },
        },
      ],
    });
    const peer = await rig.tunnel(host);
    peer.send(
      `GET /ws HTTP/1.1\r\nHost: ${host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nX-Key: kept\r\n\r\n`,
    );
    const head = await peer.until('first');
    expect(head).toStartWith('HTTP/1.1 101 Switching Protocols\r\n');
    expect(seenKey).toBe('kept');
    peer.send('hello');
    await peer.until('HELLO');
    peer.socket.end();
    expect(await rig.recorded(1)).toMatchObject([{ status: 101, bytesUp: 5, bytesDown: 10, decision: 'allowed' }]);
  });

  test('a client that prefers HTTP/2 falls back to HTTP/1.1', async () => {
    await using rig = await openRig({ origins: [{ host, handler: echo }] });
    const peer = await rig.tunnel(host, { alpn: ['h2', 'http/1.1'] });
    expect('alpnProtocol' in peer.socket && peer.socket.alpnProtocol).toBe('http/1.1');
    await expect(rig.tunnel(host, { alpn: ['h2'] })).rejects.toThrow();
  });

  test('a large body goes up and down whole', async () => {
    const size = 8 * 1024 * 1024;
    const sum = createHash('sha256');
    await using rig = await openRig({
      origins: [{ host, handler: (request, response) => void request.pipe(response) }],
      secrets: [secret(), secret({ name: 'OTHER', placeholder: 'other-placeholder', allowedHosts: ['x.test'] })],
    });
    const peer = await rig.tunnel(host);
    const piece = Buffer.alloc(64 * 1024, 'abcdefghij-sk-REAL ');
    peer.release();
    const received = Promise.withResolvers<number>();
    let bytes = 0;
    let head = '';
    peer.socket.on('data', (data: Buffer) => {
      if (!head.includes('\r\n\r\n')) head += data.toString('latin1');
      bytes += data.length;
      if (data.toString('latin1').endsWith('\r\n0\r\n\r\n')) received.resolve(bytes);
    });
    peer.send(`POST / HTTP/1.1\r\nHost: ${host}\r\nContent-Length: ${size}\r\n\r\n`);
    for (let sent = 0; sent < size; sent += piece.length) {
      sum.update(piece);
      if (!peer.socket.write(piece)) await new Promise((resolve) => peer.socket.once('drain', resolve));
    }
    expect(await received.promise).toBeGreaterThan(size);
    expect(await rig.recorded(1)).toMatchObject([{ bytesUp: size, bytesDown: size, decision: 'allowed' }]);
  });
});

test('closing the door ends every connection at once and records what was under way', async () => {
  await using rig = await openRig({ origins: [{ host, handler: (_, response) => void response.write('started') }] });
  const busy = await rig.tunnel(host);
  const idle = await rig.tunnel(host);
  busy.send(`GET /slow HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
  await busy.until('started');
  await rig.closeDoor();
  await Promise.all([busy.end(), idle.end()]);
  expect(rig.requests).toMatchObject([{ path: '/slow', status: 200, decision: 'allowed', reason: expect.any(String) }]);
  await expect(rig.connect()).rejects.toThrow();
});
