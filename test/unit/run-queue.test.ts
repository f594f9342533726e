import { describe, expect, test } from 'bun:test';
import { newId } from '../../src/kernel/id.ts';
import { leaseMs, runQueue } from '../../src/runs/queue.ts';
import { runStore } from '../../src/runs/store.ts';
import { testDatabase } from '../support/database.ts';

const times = { at: 9000, workspaceExpiresAt: 10_000 };
const succeeded = () => ({ ending: { status: 'succeeded', resultSummary: 'ok' } as const, events: [] });

/** Queue and store on a database with one automation. */
async function setUp() {
  const database = await testDatabase();
  const [workspaceId, automationId] = [newId(), newId()];
  await database.write(async (tx) => {
    await tx.run("INSERT INTO organisations VALUES ('o', 'Acme', 0)");
    await tx.run("INSERT INTO workspaces VALUES (?, 'o', 'W', 'w', 0)", workspaceId);
    await tx.run(
      `INSERT INTO automations (id, workspace_id, name, description, enabled, version, created_at, updated_at)
       VALUES (?, ?, 'A', '', 1, 1, 0, 0)`,
      automationId,
      workspaceId,
    );
  });
  const store = runStore(database);
  return {
    workspaceId,
    store,
    queue: runQueue(database),
    database,
    async add(at = 0, id = newId()) {
      const trigger = { provider: 'manual', sourceUrl: null, title: 'T', attributes: {} };
      const run = { id, workspaceId, automationId, automationVersion: 1, prompt: null, trigger, at };
      expect(await store.insert(run, [{ type: 'run_queued', data: {} }])).toBe(true);
      return id;
    },
    [Symbol.asyncDispose]: () => database[Symbol.asyncDispose](),
  };
}

describe('a claim', () => {
  test('takes the oldest run that waits and begins it', async () => {
    await using runs = await setUp();
    const { queue, add } = runs;
    await add(200);
    const oldest = await add(100);
    const claim = await queue.claim('me', 1000, 2000);
    expect(claim).toMatchObject({
      rescued: false,
      run: { id: oldest, status: 'running', phase: 'preparing', attempts: 1, leaseToken: 1, startedAt: 1000 },
    });
  });

  test('finds nothing in an empty queue, and nothing that is held', async () => {
    await using runs = await setUp();
    const { queue, add } = runs;
    expect(await queue.claim('me', 0, leaseMs)).toBeUndefined();
    await add();
    await queue.claim('me', 0, leaseMs);
    expect(await queue.claim('other', leaseMs, 2 * leaseMs)).toBeUndefined();
  });

  test('gives two hundred claimers two hundred different runs', async () => {
    await using runs = await setUp();
    const { queue, add } = runs;
    const ids = [];
    for (let n = 0; n < 200; n++) ids.push(await add(n));
    const claims = await Promise.all(ids.map(() => queue.claim('me', 1000, 2000)));
    expect(new Set(claims.map((claim) => claim?.run.id)).size).toBe(200);
    expect(claims.map((claim) => claim?.run.id)).toEqual(ids);
  });

  test('takes over a run whose lease ran out, in the phase that it was in', async () => {
    await using runs = await setUp();
    const { queue, add } = runs;
    const id = await add();
    const first = await queue.claim('old', 0, 1000);
    await queue.progress(id, first?.run.leaseToken ?? 0, { phase: 'agent', linesSeen: 7 }, [], 500);
    expect(await queue.claim('new', 1000, 2000)).toBeUndefined();
    expect(await queue.claim('new', 1001, 2000)).toMatchObject({
      rescued: true,
      run: { id, phase: 'agent', linesSeen: 7, attempts: 1, leaseToken: 2 },
    });
  });

  test('takes at once what a process of the same installation left', async () => {
    await using runs = await setUp();
    const { queue, add } = runs;
    const id = await add();
    await queue.claim('me', 0, 1_000_000);
    expect(await queue.releaseLeases('other')).toBe(0);
    expect(await queue.releaseLeases('me')).toBe(1);
    expect(await queue.claim('me', 1, 1000)).toMatchObject({ rescued: true, run: { id } });
  });
});

describe('an old holder', () => {
  test('can change nothing once the run was claimed anew', async () => {
    await using runs = await setUp();
    const { queue, store, workspaceId, add } = runs;
    const id = await add();
    await queue.claim('old', 0, 1000);
    await queue.claim('new', 2000, 3000);
    const before = await store.find(workspaceId, id);
    const event = { type: 'message', data: { text: 'late' } } as const;
    expect(await queue.renew(id, 1, 9000)).toBeUndefined();
    expect(await queue.progress(id, 1, { phase: 'finishing', sessionId: 's' }, [event], 1)).toBe(false);
    expect(await queue.requeue(id, 1)).toBe(false);
    expect(await queue.settle(id, 1, succeeded, times)).toBeUndefined();
    expect(await store.find(workspaceId, id)).toEqual(before);
    expect(await store.events(id, 0, 10)).toHaveLength(1);
  });

  test('can change nothing once the run has ended, though its token is the newest', async () => {
    await using runs = await setUp();
    const { queue, store, workspaceId, add } = runs;
    const id = await add();
    await queue.claim('me', 0, 1000);
    expect(await queue.settle(id, 1, succeeded, times)).toEqual({ status: 'succeeded', resultSummary: 'ok' });
    expect(await queue.settle(id, 1, succeeded, times)).toBeUndefined();
    expect(await queue.progress(id, 1, { phase: 'agent' }, [], 1)).toBe(false);
    expect(await store.find(workspaceId, id)).toMatchObject({ status: 'succeeded', phase: null, resultSummary: 'ok' });
  });

  test('of an earlier turn can change nothing in the next one', async () => {
    await using runs = await setUp();
    const { queue, store, workspaceId, add } = runs;
    const id = await add();
    await queue.claim('me', 0, 1000);
    await queue.settle(id, 1, succeeded, times);
    await store.reopen(workspaceId, id, 'more', [], 100);
    await queue.claim('me', 200, 1000);
    expect(await queue.progress(id, 1, {}, [], 1)).toBe(false);
    expect(await queue.renew(id, 2, 5000)).toMatchObject({ turn: 2, attempts: 1, prompt: 'more' });
  });
});

describe('progress', () => {
  test('changes what is given, leaves the rest, and forgets what is null', async () => {
    await using runs = await setUp();
    const { queue, store, workspaceId, add } = runs;
    const id = await add();
    await queue.claim('me', 0, 1000);
    const checkouts = [{ repositoryId: 'r', fullName: 'f', path: '/workspace/f', branch: 'main', commit: 'c' }];
    await queue.progress(id, 1, { sessionId: 's', checkouts, stopReason: 'output_flood', linesSeen: 3 }, [], 1);
    await queue.progress(id, 1, { phase: 'agent' }, [], 1);
    expect(await store.find(workspaceId, id)).toMatchObject({
      phase: 'agent',
      sessionId: 's',
      checkouts,
      stopReason: 'output_flood',
      linesSeen: 3,
    });
    await queue.progress(id, 1, { checkouts: null }, [], 1);
    expect(await store.find(workspaceId, id)).toMatchObject({ checkouts: null, sessionId: 's' });
  });

  test('numbers events without a gap, however many write at once', async () => {
    await using runs = await setUp();
    const { queue, store, add } = runs;
    const id = await add();
    await queue.claim('me', 0, 1000);
    const message = (n: number) => ({ type: 'message', data: { text: String(n) } }) as const;
    await Promise.all(Array.from({ length: 50 }, (_, n) => queue.progress(id, 1, {}, [message(n), message(n)], 1)));
    const events = await store.events(id, 0, 1000);
    expect(events.map((event) => event.id)).toEqual(Array.from({ length: 101 }, (_, n) => n + 1));
  });
});

describe('a cancel', () => {
  test('that came before the end decides inside the same transaction', async () => {
    await using runs = await setUp();
    const { queue, store, workspaceId, add } = runs;
    const id = await add();
    await queue.claim('me', 0, 1000);
    expect(await store.requestCancel(workspaceId, id, 5, 6)).toBe('running');
    let seen: boolean | undefined;
    await queue.settle(
      id,
      1,
      (run) => {
        seen = run.cancelRequested;
        return { ending: { status: 'cancelled' }, events: [] };
      },
      times,
    );
    expect(seen).toBe(true);
    expect(await queue.cancelRequested([id, newId()])).toEqual([id]);
    expect(await queue.cancelRequested([])).toEqual([]);
  });

  test('outlives the return to the queue, and another one then ends the run', async () => {
    await using runs = await setUp();
    const { queue, store, workspaceId, add } = runs;
    const id = await add();
    await queue.claim('me', 0, 1000);
    await store.requestCancel(workspaceId, id, 5, 6);
    expect(await queue.requeue(id, 1)).toBe(true);
    expect(await store.find(workspaceId, id)).toMatchObject({ status: 'pending', cancelRequested: true, attempts: 1 });
    expect(await store.requestCancel(workspaceId, id, 7, 8)).toBe('pending');
    expect(await store.find(workspaceId, id)).toMatchObject({ status: 'cancelled', phase: null });
    const types = (await store.events(id, 0, 10)).map(({ type }) => type);
    expect(types).toEqual(['run_queued', 'cancel_requested', 'run_cancelled']);
  });

  test("of another workspace's run is not known", async () => {
    await using runs = await setUp();
    const { store, add } = runs;
    expect(await store.requestCancel(newId(), await add(), 1, 2)).toBeUndefined();
    expect(await store.reopen(newId(), await add(), 'x', [], 1)).toBeUndefined();
  });
});

test('a workspace is forgotten once its time has come, but not under a run that was reopened', async () => {
  await using runs = await setUp();
  const { queue, store, workspaceId, add } = runs;
  const id = await add();
  await queue.claim('me', 0, 1000);
  await queue.settle(id, 1, succeeded, times);
  expect(await queue.expiredWorkspaces(times.workspaceExpiresAt)).toEqual([]);
  expect(await queue.expiredWorkspaces(times.workspaceExpiresAt + 1)).toEqual([id]);
  await store.reopen(workspaceId, id, 'x', [], 1);
  expect(await queue.expiredWorkspaces(times.workspaceExpiresAt + 1)).toEqual([]);
  expect(await queue.forgetWorkspace(id)).toBe(false);
});
