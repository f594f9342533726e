import { describe, expect, setDefaultTimeout, test } from 'bun:test';
import type { Run } from '../../src/runs/schema.ts';
import { testService } from '../support/service.ts';

setDefaultTimeout(30_000);

const count = (run: Run, type: string) => run.events.filter((event) => event.type === type).length;

/** What holds for every run that was cancelled. */
function expectCancelled(run: Run) {
  expect(run).toMatchObject({
    status: 'cancelled',
    phase: null,
    resultSummary: null,
    failureCategory: null,
    failureMessage: null,
    cancelRequestedAt: expect.any(String),
    completedAt: expect.any(String),
  });
  expect(run.events.at(-1)).toMatchObject({ type: 'run_cancelled', data: {} });
  expect(count(run, 'cancel_requested')).toBe(1);
}

describe.concurrent('a cancel', () => {
  test('ends a waiting run at once, which never starts', async () => {
    await using service = await testService({ env: { SLIPWAY_MAX_CONCURRENT_RUNS: '1' } });
    const blocker = await service.start([{ do: 'gate', name: 'g' }]);
    await service.event(blocker, 'sandbox_ready');
    const waiting = await service.start([]);
    await service.cancel(waiting);
    expectCancelled(await service.run(waiting));
    service.world.gate('g').open();
    await service.finished(blocker);
    await service.service().runner.idle();
    expect(service.world.started.map(({ runId }) => runId)).toEqual([blocker]);
  });

  test('during the checkout starts no agent', async () => {
    const checkingOut = Promise.withResolvers<void>();
    await using service = await testService();
    // A repository that never answers.
    const integrations = service.service().integrations;
    const checkout = integrations.checkout;
    const never = new Promise<never>(() => {});
    integrations.checkout = (repository) => {
      checkingOut.resolve();
      return checkout(repository).then(() => never);
    };
    const runId = await service.start([]);
    await checkingOut.promise;
    await service.event(runId, 'run_started');
    expect(await service.run(runId)).toMatchObject({ status: 'running', phase: 'checking_out' });
    await service.cancel(runId);
    expectCancelled(await service.finished(runId));
    await service.service().runner.idle();
    expect(service.world.started).toEqual([]);
  });

  test('while the sandbox starts stops the agent as soon as it is there', async () => {
    const starting = Promise.withResolvers<void>();
    const letStart = Promise.withResolvers<void>();
    await using service = await testService({
      sandbox: (sandbox) => ({
        ...sandbox,
        async start(spec) {
          starting.resolve();
          await letStart.promise;
          return sandbox.start(spec);
        },
      }),
    });
    const runId = await service.start([{ do: 'wait' }]);
    await starting.promise;
    await service.cancel(runId);
    letStart.resolve();
    expectCancelled(await service.finished(runId));
    expect(service.world.stopped).toMatchObject([{ graceMs: 10_000 }]);
  });

  test('stops a working agent with SIGTERM, and shows what it had changed', async () => {
    await using service = await testService();
    const runId = await service.start([{ do: 'write', path: 'a.txt', content: 'x\n' }, { do: 'wait' }]);
    await service.event(runId, 'file_change');
    await service.cancel(runId);
    const run = await service.finished(runId);
    expectCancelled(run);
    expect(run.events.map(({ type }) => type).slice(-3)).toEqual(['cancel_requested', 'diff', 'run_cancelled']);
    expect(service.world.stopped).toEqual([{ runId, turn: 1, graceMs: 10_000 }]);
    await service.service().runner.idle();
    expect(service.world.removed).toEqual([{ runId, turn: 1 }]);
    // Before the next look at the leases, which would notice it, too.
  }, 10_000);

  test('kills an agent that pays no heed to SIGTERM', async () => {
    await using service = await testService({ world: { maxGraceMs: 20 } });
    const runId = await service.start([{ do: 'ignore_stop' }]);
    await service.event(runId, 'sandbox_ready');
    await service.cancel(runId);
    expectCancelled(await service.finished(runId));
  });

  test('wins over a success that lands later', async () => {
    const comparing = Promise.withResolvers<void>();
    const letCompare = Promise.withResolvers<void>();
    await using service = await testService({
      sandbox: (sandbox) => ({
        ...sandbox,
        async inspect(task) {
          comparing.resolve();
          await letCompare.promise;
          return sandbox.inspect(task);
        },
      }),
    });
    const runId = await service.start([{ do: 'message', text: 'Success!' }]);
    await comparing.promise;
    expect(await service.run(runId)).toMatchObject({ status: 'running', phase: 'finishing' });
    expect((await service.cancel(runId)).status).toBe(200);
    letCompare.resolve();
    expectCancelled(await service.finished(runId));
  });

  test('twice at once, or once more, is one cancel', async () => {
    await using service = await testService({ world: { maxGraceMs: 60_000 } });
    const runId = await service.start([{ do: 'ignore_stop' }]);
    await service.event(runId, 'sandbox_ready');
    const answers = await Promise.all([service.cancel(runId), service.cancel(runId)]);
    const once = (await service.run(runId)).cancelRequestedAt;
    service.pass(1000);
    answers.push(await service.cancel(runId));
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200]);
    service.world.kill(runId);
    const run = await service.finished(runId);
    expect(run.cancelRequestedAt).toBe(once);
    expectCancelled(run);
    expect((await service.cancel(runId)).status).toBe(409);
  });

  test('while the model answers ends the request, too', async () => {
    const asked = Promise.withResolvers<void>();
    const fault = () => {
      asked.resolve();
      return { kind: 'hang' } as const;
    };
    await using service = await testService({ script: { turns: [{ steps: [], answer: 'x' }], fault } });
    const runId = await service.start([{ do: 'model', prompt: 'x' }]);
    await service.event(runId, 'sandbox_ready');
    await asked.promise;
    await service.cancel(runId);
    expectCancelled(await service.finished(runId));
    await service.model.requests[0]?.hungUp;
  });

  test('of a run that has no engine any more ends it all the same, once it is back', async () => {
    await using service = await testService();
    const runId = await service.start([{ do: 'wait' }]);
    await service.event(runId, 'sandbox_ready');
    service.world.engineDown = true;
    await service.logged('the sandbox engine does not answer');
    await service.cancel(runId);
    service.world.engineDown = false;
    expectCancelled(await service.finished(runId));
  });
});
