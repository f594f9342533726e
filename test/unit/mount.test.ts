import { expect, test } from 'bun:test';
import { eventStream } from '../../src/http/live.ts';
import { type Edge, mountOperation } from '../../src/http/mount.ts';
import { type Principal, streamOperation } from '../../src/http/operation.ts';
import { absent } from '../../src/kernel/fault.ts';
import { silentLog } from '../../src/kernel/log.ts';

const principal: Principal = { tokenId: 't', workspaceId: 'w', memberId: 'm', userId: 'u', role: 'owner' };

/** A signal that knows who listens to it: what stays behind on the server's own would stay until the server stops. */
function watchedSignal() {
  const controller = new AbortController();
  const { signal } = controller;
  const listeners = new Set<unknown>();
  let added = 0;
  const add = signal.addEventListener.bind(signal);
  const remove = signal.removeEventListener.bind(signal);
  signal.addEventListener = (type: string, listener: EventListenerOrEventListenerObject) => {
    added += 1;
    listeners.add(listener);
    add(type, listener);
  };
  signal.removeEventListener = (type: string, listener: EventListenerOrEventListenerObject) => {
    listeners.delete(listener);
    remove(type, listener);
  };
  return { signal, stop: () => controller.abort(), listening: () => listeners.size, everListened: () => added > 0 };
}

/** A stream of three events, of one event and silence, of one event and an error, or none. */
function mounted(kind: 'three' | 'quiet' | 'broken' | 'absent') {
  const stopping = watchedSignal();
  const edge: Edge = {
    authenticate: async () => principal,
    log: silentLog,
    stopping: stopping.signal,
    keepOpen: () => undefined,
  };
  const left = Promise.withResolvers<void>();
  async function* source(signal: AbortSignal) {
    try {
      for (let id = 1; id <= 3; id++) {
        yield { id, event: 'count', data: {} };
        if (kind === 'broken') throw new Error('the source broke');
        if (kind === 'quiet') await new Promise((resolve) => signal.addEventListener('abort', resolve));
      }
    } finally {
      left.resolve();
    }
  }
  const handler = mountOperation(
    streamOperation({
      id: 'stream',
      summary: 'Counts',
      method: 'GET',
      path: '/stream',
      contentType: 'text/event-stream',
      async open({ signal }) {
        if (kind === 'absent') throw absent('not_found', 'Not found');
        return eventStream(source(signal), { heartbeatMs: 15_000, signal });
      },
    }),
    edge,
  );
  const call = (method = 'GET') =>
    handler({
      request: new Request('http://localhost/stream', { method, headers: { authorization: 'Bearer key' } }),
      params: {},
    });
  return { call, stopping, left: left.promise };
}

test.each(['three', 'broken', 'absent'] as const)('a stream that is over leaves nothing behind: %s', async (kind) => {
  const { call, stopping } = mounted(kind);
  await (await call()).text();
  expect(stopping.everListened()).toBe(true);
  expect(stopping.listening()).toBe(0);
});

test('a stream whose reader leaves ends its source and leaves nothing behind', async () => {
  const { call, stopping, left } = mounted('quiet');
  const reader = (await call()).body?.getReader();
  await reader?.read();
  await reader?.read();
  expect(stopping.listening()).toBe(1);
  await reader?.cancel();
  await left;
  expect(stopping.listening()).toBe(0);
});

test('a source that waits for its signal is let go when the reader leaves', async () => {
  const { call, left } = mounted('quiet');
  const reader = (await call()).body?.getReader();
  await reader?.read();
  await reader?.read();
  const waiting = reader?.read();
  await reader?.cancel();
  await waiting;
  await left;
});

test('a HEAD of a stream leaves nothing behind', async () => {
  const { call, stopping } = mounted('quiet');
  expect((await call('HEAD')).status).toBe(200);
  expect(stopping.listening()).toBe(0);
});

test('a stream ends when the server stops, and when it stopped before', async () => {
  const { call, stopping, left } = mounted('quiet');
  const text = (await call()).text();
  stopping.stop();
  await text;
  await left;
  expect(await (await call()).text()).not.toContain('id: 2');
  expect(stopping.listening()).toBe(0);
});
