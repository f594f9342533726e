import { describe, expect, test } from 'bun:test';
import type { EgressSecret } from '../../src/egress/egress.ts';
import { type Handler, openRig, type Peer, secret } from '../support/origin.ts';

const host = 'api.allowed.test';
const other = 'evil.test';
const { placeholder, value } = secret();
const rotated = secret({ value: 'sk-ROTATEDvalue-00000000000000001' });
const get = (path: string, header = '') => `GET ${path} HTTP/1.1\r\nHost: ${host}\r\n${header}\r\n`;
const key = `X-Key: ${placeholder}\r\n`;

/** An origin that tells of every piece of a body as it comes, and answers `ok` when told to (at once for a GET). */
function witness() {
  const keys: unknown[] = [];
  let body = '';
  let closed = 0;
  let changed = Promise.withResolvers<void>();
  const notify = () => {
    changed.resolve();
    changed = Promise.withResolvers<void>();
  };
  const handler: Handler = (request, response) => {
    keys.push(request.headers['x-key']);
    request.socket.once('close', () => {
      closed += 1;
      notify();
    });
    request.on('data', (bytes: Buffer) => {
      body += bytes.toString('latin1');
      notify();
    });
    request.on('end', () => {
      if (request.url === '/never') notify();
      else response.setHeader('content-length', 2).end('ok');
    });
    request.on('error', () => {});
    notify();
  };
  return {
    keys,
    handler,
    body: () => body,
    closed: () => closed,
    async until(holds: () => boolean) {
      while (!holds()) await changed.promise;
    },
  };
}

const ok = async (peer: Peer) => {
  const text = await peer.until((all) => /\r\n\r\nok$|\r\nok\r\n0\r\n\r\n$|\r\n\r\n\{.*\}$/s.test(all));
  peer.clear();
  return Number(/^HTTP\/1\.1 (\d{3})/.exec(text)?.[1]);
};

const rigOf = (handler: Handler, secrets: EgressSecret[] = [secret()]) =>
  openRig({
    origins: [
      { host, handler },
      { host: other, handler },
    ],
    secrets,
  });

describe('a change of the secrets', () => {
  test('reaches the next request of an open connection that has not carried the value', async () => {
    const origin = witness();
    await using rig = await rigOf(origin.handler);
    const peer = await rig.tunnel(host);
    peer.send(get('/'));
    expect(await ok(peer)).toBe(200);
    rig.update({ secrets: [rotated] });
    peer.send(get('/', key));
    expect(await ok(peer)).toBe(200);
    expect(origin.keys).toEqual([undefined, rotated.value]);
  });

  test.each([
    ['is rotated', [rotated], 'API_KEY was changed or withdrawn'],
    ['is deleted', [], 'API_KEY was changed or withdrawn'],
    ['is not for the host any more', [secret({ allowedHosts: [other] })], 'API_KEY was changed or withdrawn'],
  ] as [string, EgressSecret[], string][])(
    'ends an idle connection, both sides, over which a value was sent that %s',
    async (_, secrets, why) => {
      const origin = witness();
      await using rig = await rigOf(origin.handler);
      const peer = await rig.tunnel(host);
      peer.send(get('/', key));
      expect(await ok(peer)).toBe(200);
      rig.update({ secrets });
      expect(await peer.end()).toBe('');
      await origin.until(() => origin.closed() === 1);
      const [, entry] = await rig.recorded(2);
      expect(entry).toMatchObject({ host, port: 443, method: null, status: null, decision: 'denied' });
      expect(entry?.reason).toContain(why);
    },
  );

  test('ends a request that is waiting for its answer, and the ledger tells why', async () => {
    const origin = witness();
    await using rig = await rigOf(origin.handler);
    const peer = await rig.tunnel(host);
    peer.send(get('/never', key));
    await origin.until(() => origin.keys.length === 1);
    rig.update({ secrets: [] });
    expect(await peer.end()).toBe('');
    await origin.until(() => origin.closed() === 1);
    const entries = await rig.recorded(1);
    expect(entries).toMatchObject([
      { method: 'GET', path: '/never', status: null, secrets: ['API_KEY'], decision: 'denied' },
    ]);
    expect(entries[0]?.reason).toContain('API_KEY was changed or withdrawn');
  });

  test('leaves alone what still holds, and connections that carried nothing of it', async () => {
    const origin = witness();
    await using rig = await rigOf(origin.handler);
    const [with_, without] = [await rig.tunnel(host), await rig.tunnel(host)];
    with_.send(get('/', key));
    without.send(get('/'));
    expect([await ok(with_), await ok(without)]).toEqual([200, 200]);
    rig.update({ secrets: [secret({ name: 'RENAMED', allowedHosts: ['*.allowed.test'] }), rotated] });
    with_.send(get('/', key));
    expect(await ok(with_)).toBe(200);
    rig.update({ secrets: [] });
    without.send(get('/', key));
    expect(await ok(without)).toBe(200);
    expect(origin.keys.filter((seen) => seen === value)).toHaveLength(2);
    expect(origin.keys.at(-1)).toBe(placeholder);
  });

  test('reaches the next bytes of a body under way', async () => {
    const origin = witness();
    const open = { surfaces: ['body'] } as const;
    await using rig = await rigOf(origin.handler, [secret(open)]);
    const peer = await rig.tunnel(host);
    peer.send(
      `POST / HTTP/1.1\r\nHost: ${host}\r\nContent-Length: ${4 + placeholder.length}\r\n\r\nab${placeholder.slice(0, 9)}`,
    );
    await origin.until(() => origin.body() === 'ab');
    rig.update({ secrets: [{ ...rotated, ...open }] });
    peer.send(`${placeholder.slice(9)}yz`);
    expect(await ok(peer)).toBe(200);
    expect(origin.body()).toBe(`ab${rotated.value}yz`);
  });

  test.each([
    ['whose placeholder may not go any more', { allowedHosts: [other] }, 'was sent to'],
    ['that does not fit into the promised length', { value: 'longer'.repeat(20) }, 'was changed or withdrawn'],
  ])('refuses the rest of a body with a secret %s', async (_, over, why) => {
    const origin = witness();
    await using rig = await rigOf(origin.handler, [secret({ surfaces: ['body'] })]);
    const peer = await rig.tunnel(host);
    peer.send(`POST / HTTP/1.1\r\nHost: ${host}\r\nContent-Length: ${2 + placeholder.length}\r\n\r\nab`);
    await origin.until(() => origin.body() === 'ab');
    rig.update({ secrets: [secret({ surfaces: ['body'], ...over })] });
    peer.send(placeholder);
    expect(await ok(peer)).toBe(403);
    expect(origin.body()).toBe('ab');
    const [entry] = await rig.recorded(1);
    expect(entry).toMatchObject({ decision: 'denied', secrets: [] });
    expect(entry?.reason).toContain(why);
  });

  test('ends a body under way in which the value was sent already', async () => {
    const origin = witness();
    await using rig = await rigOf(origin.handler, [secret({ surfaces: ['body'] })]);
    const peer = await rig.tunnel(host);
    peer.send(`POST / HTTP/1.1\r\nHost: ${host}\r\nContent-Length: 1000\r\n\r\n${placeholder}x`);
    await origin.until(() => origin.body() === `${value}x`);
    rig.update({ secrets: [] });
    expect(await peer.end()).toBe('');
    await origin.until(() => origin.closed() === 1);
    expect(await rig.recorded(1)).toMatchObject([{ method: 'POST', decision: 'denied', secrets: ['API_KEY'] }]);
  });

  test('ends a WebSocket whose handshake carried the value', async () => {
    const answer = 'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n';
    const over = Promise.withResolvers<void>();
    await using rig = await openRig({
      origins: [
        {
          host,
          onUpgrade(request, socket) {
            expect(request.headers['x-key']).toBe(value);
            socket.on('error', () => {}).once('close', () => over.resolve());
            socket.write(answer);
          },
        },
      ],
      secrets: [secret()],
    });
    const peer = await rig.tunnel(host);
    peer.send(get('/ws', `${key}Connection: Upgrade\r\nUpgrade: websocket\r\n`));
    await peer.until('\r\n\r\n');
    peer.clear();
    rig.update({ secrets: [rotated] });
    expect(await peer.end()).toBe('');
    await over.promise;
    const [entry] = await rig.recorded(1);
    expect(entry).toMatchObject({ path: '/ws', status: 101, decision: 'denied', secrets: ['API_KEY'] });
    expect(entry?.reason).toContain('API_KEY was changed or withdrawn');
  });

  test('does not let a pipelined request out that waited behind the ended one', async () => {
    const origin = witness();
    await using rig = await rigOf(origin.handler);
    const peer = await rig.tunnel(host);
    peer.send(get('/never', key) + get('/pipelined', key));
    await origin.until(() => origin.keys.length === 1);
    rig.update({ secrets: [rotated] });
    expect(await peer.end()).toBe('');
    await rig.closeDoor();
    expect(origin.keys).toEqual([value]);
    expect(rig.requests).toHaveLength(1);
  });
});

describe('a change of the policies', () => {
  const policies = [{ name: 'this workspace', default: 'deny', hosts: [other] }] as const;
  const why = `${host} is not in the list of allowed hosts of this workspace.`;

  test('ends tunnels to a host that may not be reached any more, and no others', async () => {
    const origin = witness();
    await using rig = await rigOf(origin.handler);
    const [unused, used, kept] = [await rig.tunnel(host), await rig.tunnel(host), await rig.tunnel(other)];
    used.send(get('/'));
    expect(await ok(used)).toBe(200);
    rig.update({ policies });
    expect([await unused.end(), await used.end()]).toEqual(['', '']);
    await origin.until(() => origin.closed() === 1);
    kept.send(`GET / HTTP/1.1\r\nHost: ${other}\r\n\r\n`);
    expect(await ok(kept)).toBe(200);
    const entries = await rig.recorded(4);
    expect(entries.filter(({ decision }) => decision === 'denied')).toMatchObject([
      { host, method: null, reason: why },
      { host, method: null, reason: why },
    ]);
  });

  test('ends a request under way and holds for the next one', async () => {
    const origin = witness();
    await using rig = await rigOf(origin.handler);
    const peer = await rig.tunnel(host);
    peer.send(get('/never'));
    await origin.until(() => origin.keys.length === 1);
    rig.update({ policies });
    expect(await peer.end()).toBe('');
    expect(await rig.recorded(1)).toMatchObject([{ method: 'GET', decision: 'denied', reason: why }]);
    await expect(rig.tunnel(host)).rejects.toThrow('403');
    rig.update({ policies: [] });
    const again = await rig.tunnel(host);
    again.send(get('/'));
    expect(await ok(again)).toBe(200);
  });

  test('leaves the secrets as they are, and the other way round', async () => {
    const origin = witness();
    await using rig = await rigOf(origin.handler);
    rig.update({ policies });
    rig.update({ secrets: [rotated] });
    await expect(rig.tunnel(host)).rejects.toThrow('403');
    rig.update({ policies: [] });
    const peer = await rig.tunnel(host);
    peer.send(get('/', key));
    expect(await ok(peer)).toBe(200);
    expect(origin.keys).toEqual([rotated.value]);
  });
});
