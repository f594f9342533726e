import { describe, expect, test } from 'bun:test';
import { createHash } from 'node:crypto';
import { zstdCompressSync } from 'node:zlib';
import { Carried } from '../../src/egress/carried.ts';
import type { RequestHead, ResponseHead } from '../../src/egress/http1.ts';
import { planRequest } from '../../src/egress/plan.ts';
import { relayAnswer } from '../../src/egress/relay.ts';
import { secretsForHost } from '../../src/egress/substitute.ts';
import { upload } from '../../src/egress/upload.ts';
import { relayMessages } from '../../src/egress/websocket.ts';
import { frameOf, opcodes } from '../../src/egress/websocket-frames.ts';
import { type Transport, Wire } from '../../src/egress/wire.ts';
import { echo, openRig, secret } from '../support/origin.ts';

const host = 'api.allowed.test';
const { placeholder, value } = secret();
const mebibyte = 1024 * 1024;

/** A socket that never takes a byte, or one that is read from until it is told to pause. */
function stalledSocket() {
  const paused = Promise.withResolvers<void>();
  let accepted = 0;
  const transport: Transport = {
    write: () => 0,
    end() {},
    terminate() {},
    pause: () => paused.resolve(),
    resume() {},
  };
  const wire = new Wire(transport);
  return {
    wire,
    accepted: () => accepted,
    /** Offers bytes until the reader wants no more of them. */
    async offer(next: () => Buffer) {
      let full = false;
      void paused.promise.then(() => {
        full = true;
      });
      while (!full && accepted < 64 * mebibyte) {
        const bytes = next();
        accepted += bytes.length;
        wire.receive(bytes);
        await new Promise((resolve) => setImmediate(resolve));
      }
    },
    end: () => wire.drop(),
  };
}

function planFor(headers: RequestHead['headers'] = [], method = 'GET') {
  const secrets = secretsForHost([secret({ surfaces: ['headers', 'body', 'websocket'] })], host, true);
  const head: RequestHead = { method, target: '/', version: '1.1', headers: [['Host', host], ...headers], text: '' };
  const passage = new Carried().passage(host, () => secrets);
  return planRequest(head, { authority: { host, port: 443 }, secure: true, target: '/' }, passage);
}

/** What the proxy has taken from one side and not got rid of at the other. */
async function takenWhileStalled(
  work: (client: Wire, upstream: Wire) => Promise<unknown>,
  from: 'client' | 'upstream',
  next: () => Buffer,
): Promise<number> {
  const client = stalledSocket();
  const upstream = stalledSocket();
  const done = work(client.wire, upstream.wire).catch(() => {});
  const source = from === 'client' ? client : upstream;
  await source.offer(next);
  client.end();
  upstream.end();
  await done;
  return source.accepted();
}

describe('a side that takes nothing costs at most 1 MiB', () => {
  const piece = Buffer.alloc(64 * 1024, `data ${value} `);
  const relay = (headers: ResponseHead['headers']) => (client: Wire, upstream: Wire) =>
    relayAnswer({
      client,
      upstream,
      head: { version: '1.1', status: 200, reason: 'OK', headers },
      plan: planFor(),
      clientStays: true,
      onHead() {},
      count() {},
      failure: () => null,
    });

  test('an answer', async () => {
    const taken = await takenWhileStalled(relay([['Content-Length', '999999999']]), 'upstream', () => piece);
    expect(taken).toBeGreaterThan(0);
    expect(taken).toBeLessThanOrEqual(mebibyte);
  });

  test('an answer that unpacks to ten thousand times its size', async () => {
    const bomb = zstdCompressSync(Buffer.alloc(256 * mebibyte));
    expect(bomb.length).toBeLessThan(64 * 1024);
    const client = stalledSocket();
    let held = 0;
    const write = client.wire.write.bind(client.wire);
    client.wire.write = (bytes) => {
      held += bytes.length;
      write(bytes);
    };
    const congested = Promise.withResolvers<void>();
    const drained = client.wire.drained.bind(client.wire);
    client.wire.drained = () => {
      congested.resolve();
      return drained();
    };
    const upstream = stalledSocket();
    const headers = [
      ['Content-Encoding', 'zstd'],
      ['Content-Length', String(bomb.length)],
    ] as const;
    upstream.wire.receive(bomb);
    const done = relay(headers)(client.wire, upstream.wire).catch(() => {});
    await congested.promise;
    expect(held).toBeGreaterThan(0);
    expect(held).toBeLessThanOrEqual(mebibyte);
    upstream.end();
    client.end();
    await done;
  });

  test('a request body', async () => {
    const plan = planFor([['Content-Length', '999999999']], 'POST');
    const work = (client: Wire, upstream: Wire) =>
      upload(
        client,
        upstream,
        plan,
        () => {},
        () => false,
      );
    expect(await takenWhileStalled(work, 'client', () => piece)).toBeLessThanOrEqual(mebibyte);
  });

  for (const from of ['client', 'upstream'] as const) {
    test(`WebSocket messages of the ${from}, small ones and one without end`, async () => {
      const counts = { up() {}, down() {} };
      const work = (client: Wire, upstream: Wire) => relayMessages(client, upstream, planFor(), counts);
      const small = frameOf(opcodes.text, true, piece, from === 'client');
      expect(await takenWhileStalled(work, from, () => small)).toBeLessThanOrEqual(mebibyte + small.length);
      const endless = frameOf(opcodes.text, true, Buffer.alloc(65 * mebibyte), from === 'client');
      let at = 0;
      const next = () => {
        at += 64 * 1024;
        return endless.subarray(at - 64 * 1024, at);
      };
      expect(await takenWhileStalled(work, from, next)).toBeLessThanOrEqual(mebibyte);
    });
  }
});

test('the last message of a client that hangs up with it is sent on', async () => {
  let written = 0;
  const upstream: Wire = new Wire({
    write(bytes) {
      written += bytes.length;
      return bytes.length;
    },
    end: () => upstream.drop(),
    terminate() {},
    pause() {},
    resume() {},
  });
  const client = stalledSocket().wire;
  client.onClose = () => upstream.destroy();
  const done = relayMessages(client, upstream, planFor(), { up() {}, down() {} });
  const last = frameOf(opcodes.text, true, Buffer.from('the last word'), true);
  client.receive(last);
  client.finish();
  await done;
  expect(written).toBe(last.length);
});

describe('streams', () => {
  /** Sockets of the kernel hold several MiB each; a proxy that gathered would hold all of it. */
  const mostLag = 24 * mebibyte;
  const size = 64 * mebibyte;
  const piece = Buffer.alloc(64 * 1024, 'abcdefghij-sk-REAL ');

  test('a large download arrives whole, and never much more is sent than was read', async () => {
    let sent = 0;
    let read = 0;
    let lag = 0;
    await using rig = await openRig({
      secrets: [secret()],
      origins: [
        {
          host,
          async handler(_, response) {
            response.setHeader('content-length', size);
            for (; sent < size; sent += piece.length) {
              lag = Math.max(lag, sent - read);
              if (!response.write(piece)) await new Promise((resolve) => response.once('drain', resolve));
            }
            response.end();
          },
        },
      ],
    });
    const peer = await rig.tunnel(host);
    peer.release();
    const sum = createHash('sha256');
    const done = Promise.withResolvers<void>();
    peer.socket.on('data', (bytes: Buffer) => {
      const body = read === 0 ? bytes.subarray(bytes.indexOf('\r\n\r\n') + 4) : bytes;
      read += body.length;
      sum.update(body);
      peer.socket.pause();
      setImmediate(() => peer.socket.resume());
      if (read >= size) done.resolve();
    });
    peer.send(`GET / HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
    await done.promise;
    const wanted = createHash('sha256');
    for (let at = 0; at < size; at += piece.length) wanted.update(piece);
    expect(sum.digest('hex')).toBe(wanted.digest('hex'));
    expect(lag).toBeLessThan(mostLag);
    expect(await rig.recorded(1)).toMatchObject([{ bytesDown: size }]);
  }, 30_000);

  test('a large upload arrives whole, and never much more is taken than was read', async () => {
    let read = 0;
    let lag = 0;
    await using rig = await openRig({
      secrets: [secret({ surfaces: ['body'] }), secret({ placeholder: 'ph_other', allowedHosts: ['x.test'] })],
      origins: [
        {
          host,
          handler(request, response) {
            request.on('data', (bytes: Buffer) => {
              read += bytes.length;
              request.pause();
              setImmediate(() => request.resume());
            });
            request.on('end', () => response.setHeader('content-length', 2).end('ok'));
          },
        },
      ],
    });
    const peer = await rig.tunnel(host);
    peer.send(`PUT / HTTP/1.1\r\nHost: ${host}\r\nContent-Length: ${size}\r\n\r\n`);
    for (let sent = 0; sent < size; sent += piece.length) {
      if (!peer.socket.write(piece)) await new Promise((resolve) => peer.socket.once('drain', resolve));
      lag = Math.max(lag, sent - read);
    }
    await peer.until('ok');
    expect(read).toBe(size);
    expect(lag).toBeLessThan(mostLag);
  }, 30_000);

  test('an answer that comes before the end of the body is given to the client whole', async () => {
    await using rig = await openRig({
      secrets: [secret()],
      origins: [
        {
          host,
          handler: (_, response) => void response.writeHead(413, { 'content-length': 9 }).end('too large'),
        },
        { host: 'b.test', handler: echo },
      ],
    });
    const peer = await rig.tunnel(host);
    peer.send(`POST / HTTP/1.1\r\nHost: ${host}\r\nContent-Length: ${8 * mebibyte}\r\n\r\n${'x'.repeat(1000)}`);
    const all = await peer.until('too large');
    expect(all).toStartWith('HTTP/1.1 413 ');
    expect(all).toContain('Connection: close');
    // The client that is in the middle of its body goes on with it for a while.
    for (let count = 0; count < 64; count++) peer.send(Buffer.alloc(64 * 1024));
    await peer.end();
    expect(await rig.recorded(1)).toMatchObject([{ status: 413, decision: 'allowed' }]);
  });

  test('trailers go both ways, from an origin that speaks HTTP/1.0 too, and the connection goes on', async () => {
    const seen: string[] = [];
    await using rig = await openRig({
      secrets: [secret()],
      origins: [
        {
          host: 'plain.test',
          plain: true,
          onSocket(socket) {
            socket.on('data', (bytes) => {
              seen.push(bytes.toString('latin1'));
              if (seen.join('').endsWith('\r\nX-Up: 1\r\n\r\n')) {
                socket.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Down: 2\r\n\r\n');
              } else if (seen.join('').includes('GET /old')) socket.end('HTTP/1.0 200 OK\r\n\r\nto the end');
            });
          },
        },
      ],
    });
    const peer = await rig.connect();
    peer.send(
      'POST http://plain.test/ HTTP/1.1\r\nHost: plain.test\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX-Up: 1\r\n\r\n',
    );
    await peer.until('2\r\nok\r\n0\r\nX-Down: 2\r\n\r\n');
    peer.clear();
    for (let round = 0; round < 2; round++) {
      peer.send('GET http://plain.test/old HTTP/1.1\r\nHost: plain.test\r\n\r\n');
      await peer.until('a\r\nto the end\r\n0\r\n\r\n');
      peer.clear();
    }
    expect(await rig.recorded(3)).toMatchObject([{ status: 200 }, { status: 200 }, { status: 200 }]);
    expect(rig.accepted()).toBe(2);
  });
});

test('the beginning of a value at the end of an event is held back, and given when it was none', async () => {
  const proceed = Promise.withResolvers<void>();
  await using rig = await openRig({
    secrets: [secret()],
    origins: [
      {
        host,
        async handler(_, response) {
          response.write(`data: ${value.slice(0, 12)}`);
          await proceed.promise;
          response.end(`${value.slice(12)}\n\ndata: ${value.slice(0, 12)}`);
        },
      },
    ],
  });
  const peer = await rig.tunnel(host);
  peer.send(`GET / HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
  expect(await peer.until('data: ')).not.toContain(value.slice(0, 4));
  proceed.resolve();
  const all = await peer.until('\r\n0\r\n\r\n');
  expect(all).toContain(`${placeholder}\n\ndata: `);
  expect(all).toContain(value.slice(0, 12));
});
