import { expect, test } from 'bun:test';
import { createServer } from '../../src/http/server.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { goodKey, rawConnection, toyEdge } from '../support/edge.ts';

const request = (path: string) => `GET ${path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${goodKey}\r\n\r\n`;

test('a stream sends a retry hint, then each event with id, name and one line of data', async () => {
  await using edge = await toyEdge();
  const response = await edge.call('/api/v1/stream/three');
  expect(response.headers.get('content-type')).toBe('text/event-stream');
  expect(response.headers.get('cache-control')).toBe('no-store');
  expect(response.headers.get('x-request-id')).not.toBeNull();
  const frame = (id: number) => `id: ${id}\nevent: count\ndata: {"id":${id},"text":"a\\nb"}\n\n`;
  expect(await response.text()).toBe(`retry: 2000\n\n${frame(1)}${frame(2)}${frame(3)}`);
});

test('a stream goes on after the last event that the client saw', async () => {
  await using edge = await toyEdge();
  const text = await (await edge.call('/api/v1/stream/three', { headers: { 'last-event-id': '2' } })).text();
  expect(text.match(/^id: .*$/gm)).toEqual(['id: 3']);
});

test('what goes wrong before the first byte is an ordinary JSON error', async () => {
  await using edge = await toyEdge();
  const absent = await edge.call('/api/v1/stream/none');
  expect([absent.status, await absent.json()]).toEqual([404, { error: 'Item not found', code: 'item_not_found' }]);
  expect((await edge.call('/api/v1/stream/three', { key: null })).status).toBe(401);
});

test('the source ends when the client leaves', async () => {
  await using edge = await toyEdge();
  {
    using connection = rawConnection(edge.listening.port);
    connection.socket.write(request('/api/v1/stream/quiet'));
    await connection.until('id: 1');
  }
  await edge.state.left.promise;
  expect(edge.log()).toBe('');
});

test('a client that does not read holds its source back', async () => {
  await using edge = await toyEdge();
  using connection = rawConnection(edge.listening.port);
  connection.socket.pause();
  connection.socket.write(request('/api/v1/stream/flood'));
  // Requests that are answered meanwhile are the clock: the stream's count must come to rest.
  let before = -1;
  while (before !== edge.state.pulled || before < 2) {
    before = edge.state.pulled;
    for (let round = 0; round < 20; round++) await edge.call('/api/v1/items/1');
  }
  expect(edge.state.pulled).toBeLessThan(500);
  connection.socket.resume();
  await connection.until(new RegExp(`id: ${before + 50}\\n`));
});

test('a source that breaks is logged with the request, and the client sees only an end', async () => {
  await using edge = await toyEdge();
  const text = await (await edge.call('/api/v1/stream/broken')).text();
  expect(text.match(/^id: .*$/gm)).toEqual(['id: 1', 'id: 2']);
  expect(text).not.toContain('source broke');
  expect(edge.log()).toContain('the source broke');
  expect(edge.log()).toContain('"operation":"stream"');
});

test('a download that breaks is not taken for a whole one', async () => {
  await using edge = await toyEdge();
  const download = edge.call('/api/v1/download').then((response) => response.text());
  await expect(download).rejects.toThrow();
  expect(edge.log()).toContain('the file broke');
});

test('stop ends live streams and lets a request under way finish', async () => {
  await using edge = await toyEdge();
  using stream = rawConnection(edge.listening.port);
  stream.socket.write(request('/api/v1/stream/quiet'));
  await stream.until('id: 1');
  const waiting = edge.call('/api/v1/wait');
  await edge.state.waiting.promise;
  const stopping = edge.listening.stop(60_000);
  await edge.state.left.promise;
  edge.state.letGo.resolve();
  expect(await (await waiting).json()).toEqual({ waited: true });
  await stopping;
  await expect(edge.call('/api/v1/items/1')).rejects.toThrow();
});

test('stop closes what has not finished when the grace is over', async () => {
  await using edge = await toyEdge();
  const waiting = edge.call('/api/v1/wait').catch((error: unknown) => error);
  await edge.state.waiting.promise;
  await edge.listening.stop(0);
  expect(await waiting).toBeInstanceOf(Error);
});

test('an address that is taken is named, with the setting to change', async () => {
  await using edge = await toyEdge();
  const { host, port } = edge.listening;
  const second = createServer({ operations: [], authenticate: () => Promise.reject(), log: silentLog });
  await expect(second.listen({ host, port })).rejects.toThrow(
    new RegExp(`${host}:${port} is in use by another program.*--listen HOST:PORT or SLIPWAY_LISTEN`),
  );
});

test('the address is answered as it can be called', async () => {
  await using edge = await toyEdge();
  expect(edge.listening.url).toBe(`http://127.0.0.1:${edge.listening.port}`);
  expect(edge.listening.port).toBeGreaterThan(0);
});

test('a page below the guarded prefix is a mistake that shows at start', () => {
  const page = { method: 'GET', path: '/api/v1/open', handle: async () => new Response() } as const;
  const create = () =>
    createServer({ operations: [], pages: [page], authenticate: () => Promise.reject(), log: silentLog });
  expect(create).toThrow('/api/v1/open');
});
