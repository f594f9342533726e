import { describe, expect, setDefaultTimeout, test } from 'bun:test';
import { testService } from '../support/service.ts';

setDefaultTimeout(30_000);

const workspaceKeptMs = 24 * 60 * 60 * 1000;

describe.concurrent('the reaper', () => {
  test('keeps a workspace for 24 hours after the end of its run, and not longer', async () => {
    await using service = await testService();
    const { id } = await service.played([]);
    await service.service().runner.idle();
    service.pass(workspaceKeptMs - 60_000);
    expect(await service.service().reap()).toBe(0);
    expect(service.world.runs.get(id)?.hasVolumes).toBe(true);
    service.pass(120_000);
    expect(await service.service().reap()).toBe(1);
    expect(service.world.runs.has(id)).toBe(false);
    expect(await service.service().reap()).toBe(0);
    expect((await service.run(id)).events.length).toBeGreaterThan(0);
    expect((await service.call('GET', `/runs/${id}/turns/1/raw`)).status).toBe(200);
  });

  test('counts the 24 hours from the end of the last turn', async () => {
    await using service = await testService();
    const { id } = await service.played([]);
    service.pass(workspaceKeptMs - 60_000);
    await service.message(id, []);
    await service.finished(id);
    service.pass(120_000);
    expect(await service.service().reap()).toBe(0);
    service.pass(workspaceKeptMs);
    expect(await service.service().reap()).toBe(1);
  });

  test('leaves a run alone that works or waits, however long', async () => {
    await using service = await testService({ env: { SLIPWAY_MAX_CONCURRENT_RUNS: '1' } });
    const { id } = await service.played([{ do: 'write', path: 'kept.txt', content: 'x' }]);
    const working = await service.start([{ do: 'gate', name: 'g' }]);
    await service.event(working, 'sandbox_ready');
    // Reopened, and waiting behind the other one.
    await service.message(id, [{ do: 'read', path: 'kept.txt' }]);
    service.pass(10 * workspaceKeptMs);
    expect(await service.service().reap()).toBe(0);
    service.world.gate('g').open();
    expect(await service.finished(working)).toMatchObject({ status: 'succeeded' });
    expect(await service.finished(id)).toMatchObject({ status: 'succeeded', turn: 2 });
  });

  test('removes what the engine holds of runs that nobody knows', async () => {
    await using service = await testService();
    const { id } = await service.played([]);
    const known = service.world.runs.get(id);
    if (!known) throw new Error('the run has no volumes');
    service.world.runs.set('stranger', { ...known, directory: `${known.directory}-2`, containers: new Map() });
    expect(await service.service().reap()).toBe(1);
    expect([...service.world.runs.keys()]).toEqual([id]);
  });

  test('removes the container of a finished run and keeps its workspace', async () => {
    await using service = await testService({
      sandbox: (sandbox) => ({
        ...sandbox,
        // The engine refuses the first removal.
        start: async (spec) => ({
          ...(await sandbox.start(spec)),
          remove: () => Promise.reject(new Error('not now')),
        }),
      }),
    });
    const { id } = await service.played([]);
    await service.service().runner.idle();
    expect(service.world.runs.get(id)?.containers.size).toBe(1);
    expect(await service.service().reap()).toBe(1);
    expect(service.world.runs.get(id)).toMatchObject({ hasVolumes: true });
    expect(service.world.runs.get(id)?.containers.size).toBe(0);
    expect(await service.service().reap()).toBe(0);
  });

  test('goes on where it was broken off: a workspace that could not be removed is removed next time', async () => {
    await using service = await testService();
    const { id } = await service.played([]);
    await service.service().runner.idle();
    service.pass(workspaceKeptMs + 1000);
    service.world.engineDown = true;
    expect(service.service().reap()).rejects.toThrow();
    await service
      .service()
      .reap()
      .catch(() => {});
    service.world.engineDown = false;
    expect(await service.service().reap()).toBe(1);
    expect(service.world.runs.has(id)).toBe(false);
  });
});
