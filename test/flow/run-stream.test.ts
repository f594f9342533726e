import { describe, expect, setDefaultTimeout, test } from 'bun:test';
import type { RunEvent } from '../../src/runs/schema.ts';
import type { DummyStepInput } from '../../src/sandbox/dummy-schema.ts';
import { type TestService, testService } from '../support/service.ts';

setDefaultTimeout(30_000);

const says = (from: number, to: number): DummyStepInput[] =>
  Array.from({ length: to - from + 1 }, (_, n) => ({ do: 'message', text: `line ${from + n}` }));

interface Frame {
  readonly id: number;
  readonly event: string;
  readonly data: RunEvent;
}

/** Opens the stream as a client does over the network and yields its events until it ends. */
async function* stream(
  url: string,
  service: TestService,
  runId: string,
  query = '',
  headers = {},
  signal?: AbortSignal,
) {
  const response = await fetch(`${url}/api/v1/runs/${runId}/stream${query}`, {
    headers: { authorization: `Bearer ${service.workspaceKey}`, ...headers },
    ...(signal ? { signal } : {}),
  });
  expect(response.status).toBe(200);
  expect(response.headers.get('content-type')).toStartWith('text/event-stream');
  let rest = '';
  const decoder = new TextDecoder();
  for await (const piece of response.body ?? []) {
    rest += decoder.decode(piece, { stream: true });
    const parts = rest.split('\n\n');
    rest = parts.pop() ?? '';
    for (const part of parts) {
      const fields = Object.fromEntries(part.split('\n').map((line) => line.split(/: (.*)/s).slice(0, 2)));
      if (fields.data) yield { id: Number(fields.id), event: fields.event, data: JSON.parse(fields.data) } as Frame;
    }
  }
}

async function listening(service: TestService) {
  const server = await service.service().server.listen({ host: '127.0.0.1', port: 0 });
  return { url: server.url, [Symbol.asyncDispose]: () => server.stop(0) };
}

async function all(frames: AsyncIterable<Frame>): Promise<Frame[]> {
  const list = [];
  for await (const frame of frames) list.push(frame);
  return list;
}

describe.concurrent('the stream of a run', () => {
  test('shows what happens as it happens, and ends with the run', async () => {
    await using service = await testService();
    await using server = await listening(service);
    const runId = await service.start([{ do: 'message', text: 'a' }, { do: 'gate', name: 'g' }, ...says(1, 2)]);
    const seen: Frame[] = [];
    for await (const frame of stream(server.url, service, runId)) {
      seen.push(frame);
      // Nothing of what comes after the gate can have been sent before it is opened.
      if (frame.data.data?.text === 'a') service.world.gate('g').open();
    }
    const { events } = await service.run(runId);
    expect(seen.map(({ data }) => data)).toEqual(events);
    expect(seen.map(({ id, event }) => [id, event])).toEqual(events.map(({ id, type }) => [id, type]));
  });

  test('goes on after the event that was seen last, whichever way it is named', async () => {
    await using service = await testService();
    await using server = await listening(service);
    const { id, events } = await service.played(says(1, 3));
    const ids = async (query: string, headers = {}) =>
      (await all(stream(server.url, service, id, query, headers))).map((frame) => frame.id);
    const from = (n: number) => events.map((event) => event.id).filter((each) => each > n);
    expect(await ids('')).toEqual(from(0));
    expect(await ids('?after=4')).toEqual(from(4));
    expect(await ids('', { 'last-event-id': '4' })).toEqual(from(4));
    expect(await ids('?after=1', { 'last-event-id': '4' })).toEqual(from(4));
    expect(await ids('?after=2', { 'last-event-id': 'rubbish' })).toEqual(from(2));
    expect(await ids(`?after=${events.length}`)).toEqual([]);
    expect(await ids('?after=999999')).toEqual([]);
  });

  test('loses and doubles nothing for readers who join at any moment, leave and come back', async () => {
    await using service = await testService();
    await using server = await listening(service);
    const gates = Array.from({ length: 8 }, (_, n) => `g${n}`);
    const runId = await service.start(
      gates.flatMap((name, n): DummyStepInput[] => [...says(n * 25 + 1, n * 25 + 25), { do: 'gate', name }]),
    );
    const readers: Promise<number[]>[] = [];
    const reader = async (leavesAfter: number) => {
      const ids: number[] = [];
      for (;;) {
        let taken = 0;
        let ended = true;
        const abort = new AbortController();
        try {
          const headers = { 'last-event-id': String(ids.at(-1) ?? 0) };
          for await (const { id } of stream(server.url, service, runId, '', headers, abort.signal)) {
            ids.push(id);
            taken += 1;
            if (taken < leavesAfter) continue;
            ended = false;
            break;
          }
        } finally {
          abort.abort();
        }
        if (ended) return ids;
      }
    };
    for (const [n, name] of gates.entries()) {
      readers.push(reader(Number.POSITIVE_INFINITY), reader(7 + n));
      await service.world.reached(name);
      service.world.gate(name).open();
    }
    const { events } = await service.finished(runId);
    const whole = events.map(({ id }) => id);
    expect(whole).toHaveLength(events.length);
    for (const ids of await Promise.all(readers)) expect(ids).toEqual(whole);
  });

  test('ends its reading when the reader leaves, though the run is silent', async () => {
    await using service = await testService();
    await using server = await listening(service);
    const runs = service.service().runs;
    const follow = runs.follow;
    const left = Promise.withResolvers<void>();
    runs.follow = async function* (...given) {
      try {
        yield* follow(...given);
      } finally {
        left.resolve();
      }
    };
    const runId = await service.start([{ do: 'message', text: 'a' }, { do: 'wait' }]);
    const abort = new AbortController();
    const reading = (async () => {
      for await (const { data } of stream(server.url, service, runId, '', {}, abort.signal)) {
        if (data.data?.text === 'a') abort.abort();
      }
    })();
    await reading.catch(() => {});
    await left.promise;
    await service.cancel(runId);
  });

  test('of a run that waits ends when it is cancelled', async () => {
    await using service = await testService({ env: { SLIPWAY_MAX_CONCURRENT_RUNS: '1' } });
    await using server = await listening(service);
    const blocker = await service.start([{ do: 'wait' }]);
    await service.event(blocker, 'sandbox_ready');
    const runId = await service.start([]);
    const frames: Frame[] = [];
    for await (const frame of stream(server.url, service, runId)) {
      frames.push(frame);
      if (frames.length === 2) await service.cancel(runId);
    }
    expect(frames.map(({ event }) => event)).toEqual([
      'run_queued',
      'user_message',
      'cancel_requested',
      'run_cancelled',
    ]);
  });

  test('of a continued run shows both turns', async () => {
    await using service = await testService();
    await using server = await listening(service);
    const { id, events } = await service.played([]);
    await service.message(id, says(1, 1));
    const frames = await all(stream(server.url, service, id));
    expect(frames.slice(0, events.length).map(({ data }) => data)).toEqual(events);
    expect(frames.at(-1)).toMatchObject({ event: 'run_succeeded', data: { turn: 2 } });
  });

  test('ends when the server stops', async () => {
    await using service = await testService();
    const server = await service.service().server.listen({ host: '127.0.0.1', port: 0 });
    const runId = await service.start([{ do: 'wait' }]);
    let stopping: Promise<void> | undefined;
    for await (const { event } of stream(server.url, service, runId)) {
      if (event === 'sandbox_ready') stopping = server.stop(1000);
    }
    await stopping;
  });
});
