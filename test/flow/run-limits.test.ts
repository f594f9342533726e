import { describe, expect, setDefaultTimeout, test } from 'bun:test';
import type { DummyStepInput } from '../../src/sandbox/dummy-schema.ts';
import { testService } from '../support/service.ts';

setDefaultTimeout(30_000);

const asks = (times: number): DummyStepInput[] => Array.from({ length: times }, () => ({ do: 'model', prompt: 'x' }));

describe.concurrent('a run stops at its limits:', () => {
  test('the model requests of its automation, none of them too many', async () => {
    await using service = await testService();
    const run = await service.played([...asks(4), { do: 'message', text: 'Not reached.' }], { maxModelRequests: 3 });
    expect(run).toMatchObject({
      status: 'failed',
      failureCategory: 'model_request_limit_exceeded',
      inferenceUsage: { requests: 3 },
    });
    expect(run.failureMessage).toMatch(/3 model requests.*maxModelRequests/);
    expect(service.model.requests).toHaveLength(3);
  });

  test('exactly as many requests as allowed are a success', async () => {
    await using service = await testService();
    expect(await service.played(asks(3), { maxModelRequests: 3 })).toMatchObject({
      status: 'succeeded',
      inferenceUsage: { requests: 3 },
    });
  });

  test('the model requests over all turns', async () => {
    await using service = await testService();
    const { id } = await service.played(asks(2), { maxModelRequests: 3 });
    await service.message(id, [...asks(2), { do: 'wait' }]);
    expect(await service.finished(id)).toMatchObject({
      status: 'failed',
      turn: 2,
      failureCategory: 'model_request_limit_exceeded',
      inferenceUsage: { requests: 3 },
    });
    await service.message(id, [...asks(1), { do: 'wait' }]);
    expect((await service.finished(id)).failureCategory).toBe('model_request_limit_exceeded');
    expect(service.model.requests).toHaveLength(3);
  });

  test('its output', async () => {
    await using service = await testService({ world: { maxOutputBytes: 100_000 } });
    const run = await service.played([{ do: 'print_forever' }]);
    expect(run).toMatchObject({ status: 'failed', failureCategory: 'execution_failed' });
    expect(run.failureMessage).toMatch(/printed more/);
    const raw = await service.call('GET', `/runs/${run.id}/turns/1/raw`);
    const numbers = (raw.body as string).trim().split('\n').slice(1);
    expect(numbers).toEqual(numbers.map((_, index) => `line ${index + 1}`));
  });
});

describe.concurrent('the queue', () => {
  test('never works on more runs at once than it may, keeps their order, and finishes all of fifty', async () => {
    let now = 0;
    let most = 0;
    await using service = await testService({
      env: { SLIPWAY_MAX_CONCURRENT_RUNS: '3' },
      sandbox: (sandbox) => ({
        ...sandbox,
        async start(spec) {
          now += 1;
          most = Math.max(most, now);
          const process = await sandbox.start(spec);
          void process.exit.then(() => {
            now -= 1;
          });
          return process;
        },
      }),
    });
    const automationId = await service.automation();
    const blockers = [];
    for (let n = 0; n < 3; n++) blockers.push(await service.start([{ do: 'gate', name: 'g' }], automationId));
    await Promise.all(blockers.map((id) => service.event(id, 'sandbox_ready')));
    const ids = await Promise.all(
      Array.from({ length: 47 }, () => service.start([{ do: 'message', text: 'x' }], automationId)),
    );
    const claimed: string[] = [];
    for (const id of ids) void service.event(id, 'run_started').then(() => claimed.push(id));
    service.world.gate('g').open();
    const runs = await Promise.all([...blockers, ...ids].map((id) => service.finished(id)));
    expect(runs.every(({ status }) => status === 'succeeded')).toBe(true);
    expect(runs.map(({ number }) => number).toSorted((a, b) => a - b)).toEqual(runs.map((_, index) => index + 1));
    expect(most).toBe(3);
    // Taken in the order of the queue, however long each of them takes.
    const began = await service
      .data()
      .database.all<{ id: string }>('SELECT id FROM runs ORDER BY turn_started_at, queued_at, id');
    const queued = await service.data().database.all<{ id: string }>('SELECT id FROM runs ORDER BY queued_at, id');
    expect(began).toEqual(queued);
    const { body } = await service.call('GET', `/automations/${automationId}/runs?pageSize=50`);
    expect(body.total).toBe(50);
  });
});
