import { expect, test } from 'bun:test';
import { silentLog } from '../../src/kernel/log.ts';
import { createLive } from '../../src/runs/live.ts';
import type { StoredRun } from '../../src/runs/row.ts';
import type { RunEvent } from '../../src/runs/schema.ts';
import { runService } from '../../src/runs/service.ts';
import type { RunStore } from '../../src/runs/store.ts';

const event = (id: number): RunEvent => ({
  id,
  type: 'message',
  createdAt: '2026-01-01T00:00:00.000Z',
  turn: 1,
  data: { text: String(id) },
});

/** The service over a run in memory; `onRead` is called when the events were read, before they are answered. */
function setUp(onRead: (read: number) => void) {
  const live = createLive();
  const events: RunEvent[] = [];
  let status: StoredRun['status'] = 'running';
  let reads = 0;
  let listeners = 0;
  const store = {
    get: async () => ({ status, lastEventId: events.length }) as StoredRun,
    async events(_: string, after: number) {
      const read = events.filter(({ id }) => id > after);
      reads += 1;
      onRead(reads);
      return read;
    },
  } as unknown as RunStore;
  const service = runService({
    store,
    live: {
      ...live,
      onEvents(runId, listener) {
        listeners += 1;
        const stop = live.onEvents(runId, listener);
        return () => {
          listeners -= 1;
          stop();
        };
      },
    },
    clock: () => 0,
    log: silentLog,
    automation: async () => undefined,
    usageOf: async () => new Map(),
  });
  return {
    follow: (signal = new AbortController().signal) => service.follow('run', 0, signal),
    add(ends = false) {
      events.push(event(events.length + 1));
      if (ends) status = 'succeeded';
      live.announceEvents('run');
    },
    listeners: () => listeners,
  };
}

test('an event that is committed just behind a read is not waited for in vain', async () => {
  const run = setUp((read) => {
    if (read === 1) run.add();
    if (read === 3) run.add(true);
  });
  const seen = [];
  for await (const { id } of run.follow()) seen.push(id);
  expect(seen).toEqual([1, 2]);
  expect(run.listeners()).toBe(0);
});

test('a follower that is told to stop ends in the middle of a silence and listens no more', async () => {
  const silent = Promise.withResolvers<void>();
  const run = setUp(() => silent.resolve());
  const abort = new AbortController();
  const next = run.follow(abort.signal).next();
  await silent.promise;
  expect(run.listeners()).toBe(1);
  abort.abort();
  expect(await next).toEqual({ done: true, value: undefined });
  expect(run.listeners()).toBe(0);
});

test('a reader that leaves between two events listens no more', async () => {
  const run = setUp(() => {});
  run.add();
  run.add();
  for await (const { id } of run.follow()) if (id === 1) break;
  expect(run.listeners()).toBe(0);
});
