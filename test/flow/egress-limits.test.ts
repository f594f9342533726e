import { describe, expect, test } from 'bun:test';
import { echo, openRig, type Peer } from '../support/origin.ts';

const host = 'api.allowed.test';
const get = (path: string, more = '') => `GET ${path} HTTP/1.1\r\nHost: ${host}\r\n${more}\r\n`;

/** A clock in the test's hand. Set to go, it goes by half a second each time that it is looked at, as a sweep does. */
function hands() {
  const time = { now: Date.now(), goes: false };
  const now = () => {
    if (time.goes) time.now += 500;
    return time.now;
  };
  return { time, now };
}

const head = async (peer: Peer) => (await peer.until('\r\n\r\n')).split('\r\n\r\n')[0] ?? '';

describe('idle', () => {
  test('an exchange without a byte either way is ended with 504, and the ledger says why', async () => {
    const { time, now } = hands();
    const asked = Promise.withResolvers<void>();
    await using rig = await openRig({
      origins: [{ host, handler: () => asked.resolve() }],
      limits: { idleMs: 60_000, sweepMs: 1 },
      now,
    });
    const peer = await rig.tunnel(host);
    peer.send(get('/silent'));
    await asked.promise;
    time.goes = true;
    const answer = await head(peer);
    expect(answer).toStartWith('HTTP/1.1 504 ');
    expect(answer).toContain('X-Slipway-Egress: upstream_idle');
    const [entry] = await rig.recorded(1);
    expect(entry).toMatchObject({
      status: 504,
      decision: 'allowed',
      reason: 'No byte passed in either direction for 60 s.',
    });
  });

  test('a WebSocket without a byte either way is ended, and one with bytes is not', async () => {
    const { time, now } = hands();
    await using rig = await openRig({
      origins: [
        {
          host,
          onUpgrade(_, socket) {
            socket.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n');
            socket.on('data', (bytes) => socket.write(bytes));
          },
        },
      ],
      limits: { idleMs: 60_000, sweepMs: 1 },
      now,
    });
    const peer = await rig.tunnel(host);
    peer.send(get('/ws', 'Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n'));
    await head(peer);
    for (let round = 0; round < 3; round++) {
      time.now += 50_000;
      peer.clear();
      peer.send(`\x81\x04rd ${round}`);
      await peer.until(`rd ${round}`);
    }
    expect(rig.requests.length).toBe(0);
    time.goes = true;
    await peer.end();
    const [entry] = await rig.recorded(1);
    expect(entry).toMatchObject({ status: 101, reason: 'No byte passed in either direction for 60 s.' });
  });

  test('0 seconds is no limit', async () => {
    const { time, now } = hands();
    const asked = Promise.withResolvers<() => void>();
    await using rig = await openRig({
      origins: [{ host, handler: (_, response) => asked.resolve(() => response.end('late')) }],
      limits: { idleMs: 0, sweepMs: 1 },
      now,
    });
    const peer = await rig.tunnel(host);
    peer.send(get('/late'));
    const answer = await asked.promise;
    time.now += 10 * 86_400_000;
    // Two sweeps at least have passed when a connection that is past its time has been ended.
    const witness = await rig.connect();
    witness.send('GET ');
    time.now += 10 * 86_400_000;
    await witness.end();
    answer();
    expect(await peer.until('late')).toStartWith('HTTP/1.1 200 ');
  });
});

describe('bytes of a run', () => {
  test('once it has received its bytes, what is under way ends and every further request is refused', async () => {
    await using rig = await openRig({
      origins: [
        {
          host,
          handler(_, response) {
            response.writeHead(200, { 'content-length': 10_000_000 });
            response.write(Buffer.alloc(300_000));
          },
        },
        { host: 'other.test', handler: echo },
      ],
      limits: { maxBytesDown: 200_000, sweepMs: 1 },
    });
    const peer = await rig.tunnel(host);
    peer.send(get('/large'));
    await peer.end();
    const [cut] = await rig.recorded(1);
    const reason = 'The run has received as much as one run may (SLIPWAY_EGRESS_MAX_BYTES_DOWN: 200000 bytes).';
    expect(cut).toMatchObject({ status: 200, decision: 'denied', reason });
    const other = await rig.tunnel('other.test');
    other.send(`GET / HTTP/1.1\r\nHost: other.test\r\n\r\n`);
    const answer = await head(other);
    expect(answer).toStartWith('HTTP/1.1 403 ');
    expect(answer).toContain('X-Slipway-Egress: byte_limit');
    const entries = await rig.recorded(2);
    expect(entries[1]).toMatchObject({ host: 'other.test', status: 403, decision: 'denied', reason });
  });

  test('what is sent counts request by request, on kept-alive connections too', async () => {
    await using rig = await openRig({
      origins: [{ host, handler: echo }],
      limits: { maxBytesUp: 5_000, sweepMs: 60_000 },
    });
    const peer = await rig.tunnel(host);
    const statuses: string[] = [];
    for (let round = 0; round < 4; round++) {
      peer.clear();
      peer.send(`POST / HTTP/1.1\r\nHost: ${host}\r\nContent-Length: 2000\r\n\r\n${'x'.repeat(2000)}`);
      statuses.push((await head(peer)).slice(9, 12));
      if (statuses.at(-1) === '403') break;
      await peer.until('"}');
    }
    // The third request still begins below the limit; nothing begins above it.
    expect(statuses).toEqual(['200', '200', '200', '403']);
  });
});

describe('heads and connections', () => {
  test('the largest head is what the settings say', async () => {
    await using rig = await openRig({ origins: [{ host, handler: echo }], limits: { headBytes: 4096 } });
    const peer = await rig.tunnel(host);
    peer.send(get('/', `X-Long: ${'x'.repeat(3000)}\r\n`));
    expect(await head(peer)).toStartWith('HTTP/1.1 200 ');
    const second = await rig.tunnel(host);
    second.send(get('/', `X-Long: ${'x'.repeat(4096)}\r\n`));
    expect(await head(second)).toStartWith('HTTP/1.1 431 ');
  });

  test('a connection beyond the limit is refused with 503, and there is room again when one has ended', async () => {
    await using rig = await openRig({ origins: [{ host, handler: echo }], limits: { connections: 1 } });
    const first = await rig.tunnel(host);
    const second = await rig.connect();
    expect(await second.end()).toContain('X-Slipway-Egress: connection_limit');
    first.socket.destroy();
    const isOpen = async () =>
      rig.tunnel(host).then(
        () => true,
        () => false,
      );
    while (!(await isOpen())) await new Promise((resolve) => setImmediate(resolve));
  });
});

test('a name that turns from public to private is dialled once at its public address and never at the other', async () => {
  let asked = 0;
  await using rig = await openRig({
    origins: [{ host, handler: (_, response) => response.writeHead(200, { connection: 'close' }).end('x') }],
    resolve: () => (asked++ === 0 ? ['93.184.216.1'] : ['127.0.0.1']),
  });
  for (const status of ['200', '403']) {
    const peer = await rig.tunnel(host);
    peer.send(get('/', 'Connection: close\r\n'));
    expect((await head(peer)).slice(9, 12)).toBe(status);
  }
  expect(asked).toBe(2);
  expect(rig.accepted()).toBe(1);
});
