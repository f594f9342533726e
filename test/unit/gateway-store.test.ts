import { describe, expect, test } from 'bun:test';
import type { ModelRequestOutcome } from '../../src/gateway/gateway.ts';
import { modelRequestStore } from '../../src/gateway/store.ts';
import { type TestDatabase, testDatabase } from '../support/database.ts';

const outcome: ModelRequestOutcome = {
  reachedProvider: true,
  upstreamStatus: 200,
  failure: null,
  inputTokens: 100,
  cachedInputTokens: 40,
  cacheWriteTokens: 0,
  outputTokens: 10,
  costMicros: 310,
  durationMs: 5,
};

async function withRuns(...ids: string[]): Promise<TestDatabase> {
  const database = await testDatabase();
  await database.write(async (tx) => {
    await tx.run("INSERT INTO organisations VALUES ('o', 'o', 0)");
    await tx.run("INSERT INTO workspaces VALUES ('w', 'o', 'w', 'w', 0)");
    await tx.run("INSERT INTO automations VALUES ('a', 'w', 'a', '', 1, 1, 0, 0, 0)");
    for (const [number, id] of ids.entries()) {
      await tx.run(
        `INSERT INTO runs (id, workspace_id, automation_id, automation_version, number, status, turn,
           trigger_provider, trigger_title, trigger_attributes, queued_at, created_at)
         VALUES (?, 'w', 'a', 1, ?, 'running', 1, 'manual', 't', '{}', 0, 0)`,
        id,
        number,
      );
    }
  });
  return database;
}

const request = (runId: string, changes: { limit?: number; turn?: number } = {}) =>
  ({ runId, turn: 1, provider: 'openai', model: 'gpt-5.4', limit: 3, at: 1, ...changes }) as const;

describe('reserving', () => {
  test('never gives more than the limit, however many ask at once', async () => {
    await using database = await withRuns('r');
    const store = modelRequestStore(database);
    const ids = await Promise.all(Array.from({ length: 100 }, () => store.reserve(request('r', { limit: 10 }))));
    expect(new Set(ids.filter((id) => id !== null)).size).toBe(10);
    expect((await store.usageOf('r'))?.requests).toBe(10);
  });

  test('counts the turns of a run together and each run by itself', async () => {
    await using database = await withRuns('r', 's');
    const store = modelRequestStore(database);
    for (const turn of [1, 2, 3]) expect(await store.reserve(request('r', { turn }))).toBeString();
    expect(await store.reserve(request('r', { turn: 4 }))).toBeNull();
    expect(await store.reserve(request('s'))).toBeString();
  });

  test('has written the row when it resolves, and counts it as made until it is known not to be', async () => {
    await using database = await withRuns('r');
    const store = modelRequestStore(database);
    const id = (await store.reserve(request('r', { limit: 1 }))) ?? '';
    expect(
      await database.one<Record<string, unknown>>('SELECT reached_provider, duration_ms FROM model_requests'),
    ).toEqual({ reached_provider: 1, duration_ms: null });
    expect(await store.reserve(request('r', { limit: 1 }))).toBeNull();
    await store.settle(id, { ...outcome, reachedProvider: false, inputTokens: 0, outputTokens: 0 });
    expect(await store.reserve(request('r', { limit: 1 }))).toBeString();
  });
});

describe('usage', () => {
  test('is null until the first request and adds up over all of them, unsettled ones included', async () => {
    await using database = await withRuns('r');
    const store = modelRequestStore(database);
    expect(await store.usageOf('r')).toBeNull();
    const [first, second] = [await store.reserve(request('r')), await store.reserve(request('r', { turn: 2 }))];
    await store.reserve(request('r'));
    await store.settle(first ?? '', outcome);
    await store.settle(second ?? '', outcome);
    expect(await store.usageOf('r')).toEqual({ requests: 3, inputTokens: 200, outputTokens: 20, costMicros: 620 });
  });

  test('has no cost where the price of one request is unknown', async () => {
    await using database = await withRuns('r');
    const store = modelRequestStore(database);
    await store.settle((await store.reserve(request('r'))) ?? '', outcome);
    await store.settle((await store.reserve(request('r'))) ?? '', { ...outcome, costMicros: null });
    expect(await store.usageOf('r')).toEqual({ requests: 2, inputTokens: 200, outputTokens: 20, costMicros: null });
  });

  test('of many runs comes in one answer, without those that made no request', async () => {
    await using database = await withRuns('r', 's', 'quiet');
    const store = modelRequestStore(database);
    for (const run of ['r', 's', 's']) await store.settle((await store.reserve(request(run))) ?? '', outcome);
    const usage = await store.usageOfMany(['r', 's', 'quiet']);
    expect([...usage].map(([id, { requests }]) => [id, requests]).sort()).toEqual([
      ['r', 1],
      ['s', 2],
    ]);
    expect((await store.usageOfMany([])).size).toBe(0);
  });
});

test('a request is settled once: a second settlement changes nothing', async () => {
  await using database = await withRuns('r');
  const store = modelRequestStore(database);
  const id = (await store.reserve(request('r'))) ?? '';
  await store.settle(id, outcome);
  await store.settle(id, { ...outcome, inputTokens: 999, failure: 'aborted' });
  expect(await database.one<Record<string, unknown>>('SELECT * FROM model_requests')).toEqual({
    id,
    run_id: 'r',
    turn: 1,
    at: 1,
    provider: 'openai',
    model: 'gpt-5.4',
    reached_provider: 1,
    upstream_status: 200,
    failure: null,
    input_tokens: 100,
    cached_tokens: 40,
    cache_write_tokens: 0,
    output_tokens: 10,
    cost_micros: 310,
    duration_ms: 5,
  });
});
