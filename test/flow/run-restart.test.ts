import { describe, expect, setDefaultTimeout, test } from 'bun:test';
import { appendFile } from 'node:fs/promises';
import path from 'node:path';
import type { Run } from '../../src/runs/schema.ts';
import type { DummyStepInput } from '../../src/sandbox/dummy-schema.ts';
import type { Sandbox } from '../../src/sandbox/sandbox.ts';
import { type TestService, testService } from '../support/service.ts';

setDefaultTimeout(30_000);

const ways = ['stopped', 'crashed'] as const;

/** Texts of the agent's messages, in the order of the transcript. */
const said = (run: Run) => run.events.flatMap(({ type, data }) => (type === 'message' ? [data?.text as string] : []));
const count = (run: Run, type: string) => run.events.filter((event) => event.type === type).length;

/** No line of the agent is lost or doubled, and ids have no gap. */
async function expectWhole(service: TestService, run: Run, texts: readonly string[], turn = 1) {
  const { body } = await service.call('GET', `/runs/${run.id}/turns/${turn}/raw`);
  const lines = (body as string).split('\n').filter((line) => line.includes('"message"'));
  expect(lines.map((line) => JSON.parse(line).text)).toEqual([...texts]);
  expect(said(run)).toEqual([...texts]);
  expect(run.events.map(({ id }) => id)).toEqual(run.events.map((_, index) => index + 1));
}

const says = (from: number, to: number): DummyStepInput[] =>
  Array.from({ length: to - from + 1 }, (_, n) => ({ do: 'message', text: `line ${from + n}` }));
const lines = (to: number) => Array.from({ length: to }, (_, n) => `line ${n + 1}`);

/** Resolves when the agent's message is in the transcript. */
async function heard(service: TestService, runId: string, text: string) {
  for await (const { data } of service.service().runs.follow(runId, 0, new AbortController().signal)) {
    if (data?.text === text) return;
  }
}

/** A sandbox whose calls of one kind stop at a gate before they are passed on, or after they were. */
function gated(method: 'start' | 'inspect' | 'adopt', when: 'before' | 'after') {
  const arrived = Promise.withResolvers<void>();
  const open = Promise.withResolvers<void>();
  const wait = () => {
    arrived.resolve();
    return open.promise;
  };
  const wrap = (sandbox: Sandbox): Sandbox => ({
    ...sandbox,
    async [method](...given: never[]) {
      if (when === 'before') await wait();
      const result = await (sandbox[method] as (...all: never[]) => Promise<unknown>)(...given);
      if (when === 'after') await wait();
      return result;
    },
  });
  return { wrap, arrived: arrived.promise, open: open.resolve };
}

describe.concurrent('a server that is', () => {
  test('started before its engine waits for it, and takes the sandbox over then', async () => {
    await using service = await testService();
    const runId = await service.start([...says(1, 2), { do: 'gate', name: 'a' }, ...says(3, 4)]);
    await service.world.reached('a');
    await heard(service, runId, 'line 2');
    await service.halt('crashed');
    service.world.engineDown = true;
    await service.resume();
    await service.logged('the sandbox engine does not answer');
    service.world.engineDown = false;
    service.world.gate('a').open();
    const run = await service.finished(runId);
    expect(run.status).toBe('succeeded');
    await expectWhole(service, run, lines(4));
  });

  for (const how of ways) {
    test(`${how} while the agent works takes its sandbox over, and no line is lost or doubled`, async () => {
      await using service = await testService();
      const runId = await service.start([
        ...says(1, 3),
        { do: 'model', prompt: 'x' },
        { do: 'gate', name: 'a' },
        ...says(4, 6),
        { do: 'gate', name: 'b' },
        { do: 'model', prompt: 'y' },
        ...says(7, 300),
      ]);
      await service.world.reached('a');
      await heard(service, runId, 'Fine.');
      await service.halt(how);
      // It goes on while no server is there.
      service.world.gate('a').open();
      await service.world.reached('b');
      if (how === 'crashed') {
        // As if the crash had come between the raw lines and the events that are made of them.
        const raw = path.join(service.config.dataDir, 'runs', runId, 'turn-1.jsonl');
        await appendFile(raw, '{"type":"message","text":"line 4"}\n{"type":"mess');
      }
      await service.resume();
      // Heard of the lines of the meantime, the server has opened the way to the model.
      await heard(service, runId, 'line 6');
      service.world.gate('b').open();
      const run = await service.finished(runId);
      expect(run).toMatchObject({ status: 'succeeded', turn: 1, resultSummary: 'line 300' });
      const texts = [...lines(3), 'Fine.', ...lines(6).slice(3), 'Fine.', ...lines(300).slice(6)];
      await expectWhole(service, run, texts);
      expect(count(run, 'run_started')).toBe(1);
      expect(count(run, 'sandbox_ready')).toBe(1);
      expect(count(run, 'diff')).toBe(1);
      expect(service.world.started).toHaveLength(1);
      expect(run.inferenceUsage?.requests).toBe(service.model.requests.length);
      await service.service().runner.idle();
      expect(service.world.removed).toHaveLength(1);
    });

    test(`${how} again and again while the agent talks loses and doubles nothing`, async () => {
      await using service = await testService();
      const gates = ['a', 'b', 'c', 'd', 'e'];
      const runId = await service.start([
        ...gates.flatMap((name, n): DummyStepInput[] => [...says(n * 80 + 1, n * 80 + 80), { do: 'gate', name }]),
        { do: 'message', text: 'line 401' },
      ]);
      for (const name of gates) {
        await service.world.reached(name);
        service.world.gate(name).open();
        await service.restart(how);
      }
      await expectWhole(service, await service.finished(runId), lines(401));
    });

    test(`${how} while the model answers counts the request once`, async () => {
      const asked = Promise.withResolvers<void>();
      const fault = () => {
        asked.resolve();
        return { kind: 'hang' } as const;
      };
      await using service = await testService({ script: { turns: [{ steps: [], answer: 'Fine.' }], fault } });
      const runId = await service.start([{ do: 'model', prompt: 'x' }]);
      await service.event(runId, 'sandbox_ready');
      await asked.promise;
      await service.restart(how);
      const run = await service.finished(runId);
      expect(run).toMatchObject({ status: 'failed', inferenceUsage: { requests: 1 } });
    });

    test(`${how} during a checkout begins the turn again`, async () => {
      const gate = gated('start', 'before');
      await using service = await testService({ sandbox: gate.wrap });
      const runId = await service.start([{ do: 'message', text: 'line 1' }]);
      await gate.arrived;
      await service.event(runId, 'repositories_checked_out');
      expect(await service.run(runId)).toMatchObject({ status: 'running', phase: 'checking_out' });
      const halted = service.halt(how);
      gate.open();
      await halted;
      await service.resume();
      const run = await service.finished(runId);
      expect(run).toMatchObject({ status: 'succeeded' });
      await expectWhole(service, run, lines(1));
    });

    test(`${how} while the changes are compared compares them once more`, async () => {
      const gate = gated('inspect', 'before');
      await using service = await testService({ sandbox: gate.wrap });
      const runId = await service.start([{ do: 'write', path: 'x.txt', content: 'x\n' }, ...says(1, 2)]);
      await gate.arrived;
      expect(await service.run(runId)).toMatchObject({ status: 'running', phase: 'finishing' });
      const halted = service.halt(how);
      gate.open();
      await halted;
      await service.resume();
      const run = await service.finished(runId);
      expect(run).toMatchObject({ status: 'succeeded', resultSummary: 'line 2' });
      await expectWhole(service, run, lines(2));
      expect(count(run, 'diff')).toBe(1);
    });

    test(`${how} after a cancel was asked for cancels the run`, async () => {
      await using service = await testService({ world: { maxGraceMs: 60_000 } });
      const runId = await service.start([{ do: 'ignore_stop' }]);
      await service.event(runId, 'sandbox_ready');
      await service.cancel(runId);
      await service.halt(how);
      service.world.kill(runId);
      await service.resume();
      expect(await service.finished(runId)).toMatchObject({ status: 'cancelled' });
    });

    test(`${how} with runs that wait works on them afterwards, in their order`, async () => {
      await using service = await testService({ env: { SLIPWAY_MAX_CONCURRENT_RUNS: '1' } });
      const automationId = await service.automation();
      const first = await service.start([{ do: 'gate', name: 'first' }], automationId);
      const waiting = [];
      for (let n = 0; n < 3; n++) waiting.push(await service.start([], automationId));
      await service.event(first, 'sandbox_ready');
      await service.restart(how);
      service.world.gate('first').open();
      for (const id of waiting) expect(await service.finished(id)).toMatchObject({ status: 'succeeded' });
      expect(service.world.started.map(({ runId }) => runId)).toEqual([first, ...waiting]);
    });
  }

  test('killed between the start of the agent and the note of it takes it over, and never starts it twice', async () => {
    const gate = gated('start', 'after');
    await using service = await testService({ sandbox: gate.wrap });
    const runId = await service.start([...says(1, 2), { do: 'gate', name: 'g' }, ...says(3, 4)]);
    await gate.arrived;
    const halted = service.halt('crashed');
    gate.open();
    await halted;
    await service.resume();
    await service.event(runId, 'sandbox_ready');
    expect(await service.run(runId)).toMatchObject({ phase: 'agent' });
    service.world.gate('g').open();
    const run = await service.finished(runId);
    await expectWhole(service, run, lines(4));
    expect(service.world.started).toHaveLength(1);
  });

  test('killed with its engine fails the run as worker_lost, once the agent had begun', async () => {
    await using service = await testService();
    const runId = await service.start([{ do: 'wait' }]);
    await service.event(runId, 'sandbox_ready');
    await service.halt('crashed');
    service.world.runs.get(runId)?.containers.clear();
    await service.resume();
    const run = await service.finished(runId);
    expect(run).toMatchObject({ status: 'failed', failureCategory: 'worker_lost' });
    expect(run.failureMessage).toMatch(/Start the run again/);
  });

  test('killed three times during the checkout gives the run up', async () => {
    let arrived = Promise.withResolvers<void>();
    let open = Promise.withResolvers<void>();
    await using service = await testService({
      sandbox: (sandbox) => ({
        ...sandbox,
        async start(spec) {
          arrived.resolve();
          await open.promise;
          return sandbox.start(spec);
        },
      }),
    });
    const runId = await service.start([{ do: 'message', text: 'never' }]);
    for (let attempt = 1; attempt <= 3; attempt++) {
      await arrived.promise;
      const let_ = open;
      arrived = Promise.withResolvers();
      open = Promise.withResolvers();
      const halted = service.halt('crashed');
      let_.resolve();
      await halted;
      await service.resume();
    }
    const run = await service.finished(runId);
    expect(run).toMatchObject({ status: 'failed', failureCategory: 'worker_lost' });
    expect(run.events.flatMap(({ type, data }) => (type === 'run_started' ? [data] : []))).toEqual(
      [1, 2, 3].map((attempt) => ({ attempt })),
    );
    expect(service.world.started).toEqual([]);
    open.resolve();
  });

  test('restarted does not end a run whose automation was turned off meanwhile', async () => {
    await using service = await testService();
    const automationId = await service.automation();
    const runId = await service.start([{ do: 'gate', name: 'g' }], automationId);
    await service.event(runId, 'sandbox_ready');
    await service.call('PATCH', `/automations/${automationId}`, { enabled: false });
    await service.restart();
    service.world.gate('g').open();
    expect(await service.finished(runId)).toMatchObject({ status: 'succeeded' });
  });

  test('away for longer than the agent may work stops it as soon as it is back', async () => {
    await using service = await testService();
    const runId = await service.start([{ do: 'wait' }], { maxRuntimeSeconds: 60 });
    await service.event(runId, 'sandbox_ready');
    await service.halt('crashed');
    service.pass(61_000);
    await service.resume();
    const run = await service.finished(runId);
    expect(run).toMatchObject({ status: 'failed', failureCategory: 'runtime_limit_exceeded' });
    expect(run.failureMessage).toMatch(/maxRuntimeSeconds/);
    expect(service.world.stopped).toMatchObject([{ graceMs: 10_000 }]);
  });
});
