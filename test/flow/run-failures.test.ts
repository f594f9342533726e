import { describe, expect, setDefaultTimeout, test } from 'bun:test';
import { rename, rm } from 'node:fs/promises';
import path from 'node:path';
import type { RehearsalFault } from '../../src/demo/rehearsal-script.ts';
import type { FailureCategory, Run } from '../../src/runs/schema.ts';
import type { DummyStepInput } from '../../src/sandbox/dummy-schema.ts';
import { SandboxFailure } from '../../src/sandbox/sandbox.ts';
import { type TestService, type TestServiceOptions, testService } from '../support/service.ts';

setDefaultTimeout(30_000);

const asksModel: DummyStepInput[] = [{ do: 'model', prompt: 'x' }];
const scripted = (fault: RehearsalFault): TestServiceOptions => ({
  script: { turns: [{ steps: [], answer: 'Fine.' }], fault: () => fault },
});

interface Case {
  readonly options?: TestServiceOptions;
  readonly steps?: DummyStepInput[];
  readonly configuration?: Record<string, unknown>;
  /** What breaks before the run is started. */
  readonly before?: (service: TestService) => unknown;
  readonly category: FailureCategory;
  /** What the message tells the reader to do. */
  readonly mend: RegExp;
  /** The most requests that may have reached the model. */
  readonly requests?: number;
}

const cases: Record<string, Case> = {
  'the engine is down': {
    before: ({ world }) => {
      world.engineDown = true;
    },
    category: 'sandbox_unavailable',
    mend: /start it/,
  },
  'the image is missing': {
    before: ({ world }) => {
      world.imageMissing = true;
    },
    category: 'sandbox_unavailable',
    mend: /sandbox build/,
  },
  'the start fails in the middle': {
    before: ({ world }) => {
      world.failNextStart = 'failed';
    },
    category: 'sandbox_unavailable',
    mend: /look at the engine/,
  },
  'the disk is full at the start': {
    before: ({ world }) => {
      world.failNextStart = 'out_of_disk';
    },
    category: 'sandbox_disk_full',
    mend: /./,
  },
  'the disk gets full while the agent works': {
    steps: [
      { do: 'complain', line: 'write error: No space left on device' },
      { do: 'exit', code: 1 },
    ],
    category: 'sandbox_disk_full',
    mend: /Free space/,
  },
  'the work tree cannot be made': {
    steps: [{ do: 'exit', code: 97 }],
    category: 'repository_unavailable',
    mend: /checked out/,
  },
  'the repository is gone': {
    before: ({ repository }) => rename(repository.path, `${repository.path}-gone`),
    category: 'repository_unavailable',
    mend: /demo/,
  },
  'the copy of the repository is lost between the checkout and the start': {
    options: {
      sandbox: (sandbox) => ({
        ...sandbox,
        async start(spec) {
          await rm(path.join(path.dirname(path.dirname(spec.socketDirectory)), 'mirrors'), { recursive: true });
          return sandbox.start(spec);
        },
      }),
    },
    category: 'repository_unavailable',
    mend: /again/,
  },
  'the key is refused': {
    options: { acceptedKey: 'another' },
    steps: asksModel,
    category: 'model_authentication_failed',
    mend: /Check it/,
    requests: 1,
  },
  'the provider answers 429': {
    options: scripted({ kind: 'status', status: 429, retryAfterSeconds: 0 }),
    steps: asksModel,
    category: 'model_rate_limited',
    mend: /later/,
    requests: 5,
  },
  'the provider answers 500': {
    options: scripted({ kind: 'status', status: 500 }),
    steps: asksModel,
    category: 'model_unavailable',
    mend: /later/,
    requests: 5,
  },
  'the stream of the model is cut': {
    options: scripted({ kind: 'cut' }),
    steps: asksModel,
    category: 'model_unavailable',
    mend: /later/,
    requests: 1,
  },
  'the model server is down': {
    before: ({ model }) => model.stop(),
    steps: asksModel,
    category: 'model_unavailable',
    mend: /later/,
    requests: 0,
  },
  'an answer reaches the cap of its output': {
    options: scripted({ kind: 'incomplete' }),
    steps: asksModel,
    category: 'output_limit_exceeded',
    mend: /maxOutputTokensPerRequest/,
    requests: 1,
  },
  'the sandbox is out of memory': {
    steps: [{ do: 'exit', code: 137, outOfMemory: true }],
    category: 'sandbox_out_of_memory',
    mend: /SLIPWAY_SANDBOX_MEMORY_MB/,
  },
  'the agent exits with 3': { steps: [{ do: 'exit', code: 3 }], category: 'execution_failed', mend: /3/ },
  'the prompt is no script': {
    steps: [{ do: 'unknown' } as unknown as DummyStepInput],
    category: 'execution_failed',
    mend: /./,
  },
  'there is no key': { options: { modelKey: null }, category: 'model_authentication_failed', mend: /OPENAI_API_KEY/ },
  'the provider is not to be had': {
    configuration: { modelProvider: 'mistral', model: 'mistral-large' },
    category: 'configuration_unavailable',
    mend: /Choose openai/,
  },
  'the harness is not to be had': {
    configuration: { harness: 'opencode' },
    category: 'configuration_unavailable',
    mend: /Choose codex/,
  },
};

/** What holds for every run that failed, however it did. */
function expectWellFailed(service: TestService, run: Run, { category, mend, requests = 0 }: Case) {
  expect(run).toMatchObject({ status: 'failed', failureCategory: category, phase: null, resultSummary: null });
  expect(run.failureMessage).toMatch(mend);
  // One sentence or two, without a path, an address or the key.
  expect(run.failureMessage).not.toMatch(/\/tmp\/|127\.0\.0\.1|sk-test|\n/);
  expect(run.events.at(-1)).toMatchObject({
    type: 'run_failed',
    data: { category, message: run.failureMessage },
  });
  expect(service.model.requests.length).toBeLessThanOrEqual(requests);
}

describe.concurrent('a run fails, and says how to mend it, where', () => {
  for (const [name, given] of Object.entries(cases)) {
    test(name, async () => {
      await using service = await testService(given.options);
      const automationId = await service.automation(given.configuration);
      await given.before?.(service);
      const run = await service.played(given.steps ?? [], automationId);
      expectWellFailed(service, run, given);
      await service.service().runner.idle();
      expect((await service.call('GET', '/workspace')).status).toBe(200);
    });
  }
});

describe.concurrent('what changed while a run was waiting', () => {
  const whileQueued = async (change: (service: TestService, automationId: string) => unknown, mend: RegExp) => {
    await using service = await testService({ env: { SLIPWAY_MAX_CONCURRENT_RUNS: '1' } });
    const secret = await service.secret('TOKEN', 'a-value-of-a-secret');
    const blocker = await service.start([{ do: 'wait' }]);
    await service.event(blocker, 'sandbox_ready');
    const automationId = await service.automation({ workspaceSecretIds: [secret] });
    const runId = await service.start([], automationId);
    await change(service, automationId);
    await service.cancel(blocker);
    expectWellFailed(service, await service.finished(runId), { category: 'configuration_unavailable', mend });
  };

  test('an automation that was turned off does not run', () =>
    whileQueued((service, id) => service.call('PATCH', `/automations/${id}`, { enabled: false }), /Turn it on/));

  test('a secret that was removed is missed', () =>
    whileQueued(
      (service) => service.data().database.write((tx) => tx.run('DELETE FROM secrets')),
      /Choose its secrets again/,
    ));

  test('a repository that was disconnected is missed', () =>
    whileQueued(
      (service) => service.data().database.write((tx) => tx.run('DELETE FROM repositories')),
      /Choose its repositories again/,
    ));
});

describe.concurrent('after a failure', () => {
  test('the server goes on: the next run works once the engine is back', async () => {
    await using service = await testService();
    service.world.engineDown = true;
    const automationId = await service.automation();
    const answer = await service.call('POST', `/automations/${automationId}/runs`, {});
    expect(answer.status).toBe(202);
    expect((await service.finished(answer.body.runId)).failureCategory).toBe('sandbox_unavailable');
    service.world.engineDown = false;
    expect(await service.played([], automationId)).toMatchObject({ status: 'succeeded', number: 2 });
  });

  test.each(['failed', 'out_of_disk'] as const)(
    'of a start (%s), a follow-up works on a whole checkout',
    async (reason) => {
      await using service = await testService();
      service.world.failNextStart = reason;
      const { id } = await service.played([]);
      await service.message(id, [
        { do: 'read', path: 'a.txt' },
        { do: 'message', text: 'Here.' },
      ]);
      const run = await service.finished(id);
      expect(run).toMatchObject({ status: 'succeeded', resultSummary: 'Here.' });
      expect(run.events.findLast(({ type }) => type === 'diff')?.data).toMatchObject({ files: [] });
    },
  );

  test('of a start whose rest could not be removed, a follow-up works on a whole checkout', async () => {
    let refusals = 1;
    await using service = await testService({
      sandbox: (sandbox) => ({
        ...sandbox,
        async discard(runId) {
          if (refusals-- > 0) throw new SandboxFailure('failed', 'The volumes are in use; try again');
          await sandbox.discard(runId);
        },
      }),
    });
    service.world.failNextStart = 'failed';
    const { id } = await service.played([]);
    await service.message(id, [{ do: 'read', path: 'a.txt' }]);
    expect(await service.finished(id)).toMatchObject({ status: 'succeeded', turn: 2 });
  });

  test('to make the work tree, no diff is shown and a follow-up checks out anew', async () => {
    await using service = await testService();
    const failed = await service.played([{ do: 'exit', code: 97 }]);
    expect(failed.events.map(({ type }) => type)).not.toContain('diff');
    await rm(`${service.world.workspace(failed.id)}/demo/a.txt`);
    await service.message(failed.id, [{ do: 'read', path: 'a.txt' }]);
    expect(await service.finished(failed.id)).toMatchObject({ status: 'succeeded', turn: 2 });
  });

  test('of a start, nothing of the run is left on the engine', async () => {
    await using service = await testService();
    service.world.failNextStart = 'failed';
    const { id } = await service.played([]);
    await service.service().runner.idle();
    expect(service.world.runs.get(id)?.containers.size ?? 0).toBe(0);
  });

  test('the engine that goes away for a moment while the agent works is waited for', async () => {
    await using service = await testService();
    const runId = await service.start([
      { do: 'gate', name: 'g' },
      { do: 'message', text: 'Still here.' },
    ]);
    await service.event(runId, 'sandbox_ready');
    service.world.engineDown = true;
    await service.logged('the sandbox engine does not answer');
    service.world.engineDown = false;
    service.world.gate('g').open();
    expect(await service.finished(runId)).toMatchObject({ status: 'succeeded', resultSummary: 'Still here.' });
  });

  test('the engine that comes back without the agent is told as what happened', async () => {
    await using service = await testService();
    const runId = await service.start([{ do: 'wait' }]);
    await service.event(runId, 'sandbox_ready');
    service.world.engineDown = true;
    await service.logged('the sandbox engine does not answer');
    service.world.kill(runId);
    service.world.engineDown = false;
    expect(await service.finished(runId)).toMatchObject({ failureCategory: 'sandbox_unavailable' });
  });

  test('of the comparison, the answer of the agent is kept and a warning says what is missing', async () => {
    await using service = await testService();
    const runId = await service.start([
      { do: 'gate', name: 'g' },
      { do: 'message', text: 'Done.' },
    ]);
    await service.world.reached('g');
    await rm(`${service.world.workspace(runId)}/demo`, { recursive: true });
    service.world.gate('g').open();
    const run = await service.finished(runId);
    expect(run).toMatchObject({ status: 'succeeded', resultSummary: 'Done.' });
    expect(run.events.filter(({ type }) => type === 'warning')).toHaveLength(1);
  });
});
