import { describe, expect, setDefaultTimeout, test } from 'bun:test';
import { compose } from '../../src/compose.ts';
import { dummyHarness } from '../../src/harness/dummy.ts';
import type { HarnessId } from '../../src/harness/harness.ts';
import { leaseMs } from '../../src/runs/queue.ts';
import { dummySandbox } from '../../src/sandbox/dummy.ts';
import { type TestService, testService } from '../support/service.ts';

setDefaultTimeout(30_000);

/** A second node on the same database and engine, whose runner does only what it is told to: it is never started. */
async function secondNode(service: TestService, time: { now: number }) {
  const node = await compose({ ...service.config, dataDir: `${service.config.dataDir}-2` }, service.data(), {
    sandbox: dummySandbox(service.world),
    harnesses: new Map<HarnessId, ReturnType<typeof dummyHarness>>([['codex', dummyHarness('codex')]]),
    clock: () => time.now,
  });
  return Object.assign(node, { [Symbol.asyncDispose]: () => node.close() });
}

describe.concurrent('the lease of a run', () => {
  test('keeps a second runner away for as long as it is held', async () => {
    await using service = await testService();
    const runId = await service.start([{ do: 'wait' }]);
    await service.event(runId, 'sandbox_ready');
    await using other = await secondNode(service, { now: Date.now() + leaseMs - 10_000 });
    await other.runner.tick();
    await other.runner.idle();
    expect(service.world.started).toHaveLength(1);
    await service.cancel(runId);
    expect(await service.finished(runId)).toMatchObject({ status: 'cancelled' });
  });

  test('that ran out is taken over, and the old holder can write nothing any more', async () => {
    await using service = await testService();
    const runId = await service.start([
      { do: 'message', text: 'before' },
      { do: 'gate', name: 'g' },
      { do: 'message', text: 'after' },
    ]);
    await service.world.reached('g');
    await using other = await secondNode(service, { now: Date.now() + leaseMs + 10_000 });
    await other.runner.tick();
    // The old holder hears the next line, too, and finds that the run is another's.
    service.world.gate('g').open();
    await other.runner.idle();
    await service.service().runner.idle();
    const run = await service.run(runId);
    expect(run.status).toBe('succeeded');
    expect(run.events.flatMap(({ type, data }) => (type === 'message' ? [data?.text] : []))).toEqual([
      'before',
      'after',
    ]);
    expect(run.events.filter(({ type }) => type === 'diff' || type === 'run_succeeded')).toHaveLength(2);
    expect(run.events.map(({ id }) => id)).toEqual(run.events.map((_, index) => index + 1));
    expect(service.log()).toContain('run let go');
    expect(service.world.started).toHaveLength(1);
  });

  test('two runners that look at one queue never begin the same run twice', async () => {
    await using service = await testService({ env: { SLIPWAY_MAX_CONCURRENT_RUNS: '2' } });
    await using other = await secondNode(service, { now: Date.now() });
    const automationId = await service.automation();
    const ids = await Promise.all(Array.from({ length: 12 }, () => service.start([], automationId)));
    const own = service.service().runner;
    for (;;) {
      await Promise.all([other.runner.tick(), own.tick()]);
      await Promise.all([other.runner.idle(), own.idle()]);
      const waiting = await service.data().database.one("SELECT 1 AS found FROM runs WHERE status = 'pending'");
      if (!waiting) break;
    }
    const runs = await Promise.all(ids.map((id) => service.run(id)));
    expect(runs.every(({ status }) => status === 'succeeded')).toBe(true);
    expect(service.world.started.map(({ runId }) => runId).toSorted()).toEqual(ids.toSorted());
    for (const run of runs) expect(run.events.filter(({ type }) => type === 'run_started')).toHaveLength(1);
  });

  test('a cancel that another process wrote is heard', async () => {
    await using service = await testService();
    const runId = await service.start([{ do: 'wait' }]);
    await service.event(runId, 'sandbox_ready');
    await using other = await secondNode(service, { now: Date.now() });
    await other.runs.cancel(service.workspaceId, runId);
    await service.service().runner.tick();
    expect(await service.finished(runId)).toMatchObject({ status: 'cancelled' });
  });
});
