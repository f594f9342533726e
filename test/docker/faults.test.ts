import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { RehearsalFault, RehearsalScript } from '../../src/demo/rehearsal-script.ts';
import { codexHarness } from '../../src/harness/codex.ts';
import type { Harness, HarnessId } from '../../src/harness/harness.ts';
import { silentLog } from '../../src/kernel/log.ts';
import type { FailureCategory, Run } from '../../src/runs/schema.ts';
import { dockerSandbox } from '../../src/sandbox/docker.ts';
import { imageReference } from '../../src/sandbox/image.ts';
import { eventsOf, outputsOf } from '../support/docker-api.ts';
import { containerOf, volumesOf, withoutContainers } from '../support/docker-engine.ts';
import { type DockerService, type DockerServiceOptions, dockerService, testMs } from '../support/docker-service.ts';
import { engineWire, silentEngine } from '../support/docker-wire.ts';
import { localRepository } from '../support/git.ts';

const memoryMb = 320;
let server: DockerService;
/** Short, for the sockets in it. */
let sockets: string;

beforeAll(async () => {
  sockets = await mkdtemp(path.join(tmpdir(), 'slipway-'));
  server = await dockerService({ env: { SLIPWAY_SANDBOX_MEMORY_MB: String(memoryMb) } });
}, testMs);

afterAll(async () => {
  await server?.[Symbol.asyncDispose]();
  await rm(sockets, { recursive: true, force: true });
});

const running = (...commands: string[]): RehearsalScript => ({
  turns: [{ steps: commands.map((run) => ({ run })), answer: 'Done.' }],
});
const faulty = (fault: RehearsalFault): RehearsalScript => ({ ...running(), fault: () => fault });

/** The run ended as it should, was told so in one sentence, and holds nothing on the engine. */
async function expectFailure(run: Run, failureCategory: FailureCategory, message: RegExp): Promise<void> {
  expect(run).toMatchObject({ status: 'failed', phase: null, failureCategory, resultSummary: null });
  expect(run.failureMessage).toMatch(message);
  expect(run.failureMessage).toMatch(/^[A-Z]/);
  expect(run.failureMessage).not.toMatch(/sk-model|127\.0\.0\.1|\/tmp/);
  expect(run.completedAt).not.toBeNull();
  expect(run.events.at(-1)?.type).toBe('run_failed');
  await withoutContainers(run.id);
}

const runOn = async (options: DockerServiceOptions, script: RehearsalScript = running('echo hello')) => {
  await using other = await dockerService(options);
  const run = await other.played({ script });
  await withoutContainers(run.id);
  return { run, volumes: await volumesOf(run.id), isUp: (await other.api.call('GET', '/workspace')).status === 200 };
};

describe.concurrent('the model', () => {
  const cases: [string, RehearsalFault, FailureCategory, RegExp][] = [
    ['that refuses the key', { kind: 'status', status: 401 }, 'model_authentication_failed', /key/],
    ['that has had too many requests', { kind: 'status', status: 429 }, 'model_rate_limited', /rate limit/],
    ['that fails', { kind: 'status', status: 500 }, 'model_unavailable', /provider/],
    ['whose streams are cut', { kind: 'cut' }, 'model_unavailable', /provider/],
    ['whose answers reach the cap', { kind: 'incomplete' }, 'output_limit_exceeded', /maxOutputTokensPerRequest/],
    ['that rejects the request', { kind: 'status', status: 400 }, 'execution_failed', /rejected/],
  ];
  for (const [what, fault, category, message] of cases) {
    test(
      `${what} ends the run as ${category}`,
      async () => {
        const { runId, playing } = await server.start({ script: faulty(fault) });
        const run = await server.api.finished(runId);
        await expectFailure(run, category, message);
        expect(run.inferenceUsage?.requests).toBe(playing.arrived());
      },
      testMs,
    );
  }

  test(
    'that is given another key than it takes ends the run as model_authentication_failed',
    async () => {
      const run = await server.played({ script: running(), acceptedKey: 'sk-another' });
      await expectFailure(run, 'model_authentication_failed', /key/);
      expect(JSON.stringify(run)).not.toContain(server.modelKey);
    },
    testMs,
  );

  test(
    'that is down ends the run as model_unavailable',
    async () => {
      const { run } = await runOn({ env: { OPENAI_BASE_URL: 'http://127.0.0.1:9/v1' } });
      await expectFailure(run, 'model_unavailable', /provider/);
    },
    testMs,
  );

  test(
    'is asked as often as the automation allows and no more',
    async () => {
      const { runId, playing } = await server.start(
        { script: running('echo 1', 'echo 2', 'echo 3') },
        { maxModelRequests: 2 },
      );
      const run = await server.api.finished(runId);
      await expectFailure(run, 'model_request_limit_exceeded', /maxModelRequests/);
      expect(playing.arrived()).toBe(2);
      expect(run.inferenceUsage?.requests).toBe(2);
    },
    testMs,
  );
});

describe.concurrent('the agent', () => {
  /** The kernel kills first whom it is told to; the agent may tell it about its own processes. */
  const offerCodex = 'for pid in $(pgrep codex); do echo 1000 > /proc/$pid/oom_score_adj; done';
  const eatMemory = `python3 -c 'bytearray(${2 * memoryMb} << 20)'; echo "ended $?"`;

  test(
    'that is killed for its memory ends the run as sandbox_out_of_memory',
    async () => {
      const run = await server.played({ script: running(`${offerCodex}; ${eatMemory}`) });
      await expectFailure(run, 'sandbox_out_of_memory', /SLIPWAY_SANDBOX_MEMORY_MB/);
    },
    testMs,
  );

  test(
    'that fails for the model is not said to lack memory because a command of it did',
    async () => {
      const script = running(eatMemory);
      const run = await server.played({
        script: { ...script, fault: (number) => (number > 1 ? { kind: 'status', status: 401 } : null) },
      });
      expect(outputsOf(run)[0]).toContain('ended 137');
      await expectFailure(run, 'model_authentication_failed', /key/);
    },
    testMs,
  );

  /** The interface's least is a minute: the stored configuration is changed behind its back. */
  const startBriefly = async (script: RehearsalScript) => {
    const { automationId } = await server.automation({ script });
    await server.data.database.write((tx) =>
      tx.run(
        `UPDATE automation_versions SET configuration = json_set(configuration, '$.maxRuntimeSeconds', 2)
         WHERE automation_id = ?`,
        automationId,
      ),
    );
    return server.api.finished(await server.begin(automationId));
  };

  test(
    'that works for longer than it may is stopped as runtime_limit_exceeded',
    async () => expectFailure(await startBriefly(running('sleep 600')), 'runtime_limit_exceeded', /maxRuntimeSeconds/),
    testMs,
  );

  test(
    'that does not hear that it is to stop is killed 10 seconds later',
    async () => {
      // The call that follows is seen by the server itself: codex can tell nothing any more.
      const deaf = 'kill -STOP $(pgrep codex); curl -s http://10.1.2.3/; sleep 600';
      const { runId } = await server.start({ script: running(deaf) });
      await server.api.seen(runId, ({ type }) => type === 'egress_denied');
      const asked = performance.now();
      await server.api.must(200, 'POST', `/runs/${runId}/cancel`);
      const run = await server.api.finished(runId);
      const tookMs = performance.now() - asked;
      expect(run).toMatchObject({ status: 'cancelled', phase: null });
      expect(tookMs).toBeGreaterThan(9_000);
      expect(tookMs).toBeLessThan(20_000);
      await withoutContainers(runId);
    },
    testMs,
  );

  test(
    'whose container is killed by somebody else ends the run',
    async () => {
      const { runId } = await server.start({ script: running('echo begun > begun.txt; sleep 600') });
      await server.api.seen(runId, ({ type }) => type === 'tool_call');
      await (await containerOf(runId, 'agent')).kill();
      await expectFailure(await server.api.finished(runId), 'execution_failed', /137/);
    },
    testMs,
  );

  test(
    'whose container is removed by somebody else ends the run',
    async () => {
      const { runId } = await server.start({ script: running('sleep 600') });
      await server.api.seen(runId, ({ type }) => type === 'tool_call');
      await (await containerOf(runId, 'agent')).remove({ force: true });
      const run = await server.api.finished(runId);
      await expectFailure(run, 'sandbox_unavailable', /removed/);
    },
    testMs,
  );

  const printing = (script: string): Harness => {
    const codex = codexHarness();
    const launch: Harness['launch'] = (turn) => {
      const usual = codex.launch(turn);
      return { ...usual, command: ['/bin/sh', '-c', script, 'sh', ...usual.command] };
    };
    return { ...codex, launch };
  };
  const on = (script: string): DockerServiceOptions => ({
    overrides: { harnesses: new Map<HarnessId, Harness>([['codex', printing(script)]]) },
  });

  test(
    'that prints nothing that can be understood ends the run as execution_failed',
    async () => {
      const { run } = await runOn(on('head -c 300000 /dev/urandom; echo; echo "{}"; echo null; echo "[1]"; exit 0'));
      await expectFailure(run, 'execution_failed', /agent/i);
    },
    testMs,
  );

  test(
    'that prints noise between its events succeeds all the same',
    async () => {
      const noise = 'printf "noise\\n\\377\\376\\n{\\"type\\":\\"item.completed\\"}\\n"';
      const { run } = await runOn(on(`${noise}; "$@"; code=$?; ${noise}; exit $code`));
      expect(run).toMatchObject({ status: 'succeeded', resultSummary: 'Done.' });
      expect(outputsOf(run)).toEqual(['hello\n']);
    },
    testMs,
  );
});

describe.concurrent('the engine', () => {
  test(
    'without the image ends the run as sandbox_unavailable and says how to build it',
    async () => {
      const { run, volumes, isUp } = await runOn({ env: { SLIPWAY_SANDBOX_IMAGE: 'slipway-sandbox:nowhere' } });
      await expectFailure(run, 'sandbox_unavailable', /slipway sandbox build/);
      expect(volumes).toEqual([]);
      expect(isUp).toBe(true);
    },
    testMs,
  );

  test(
    'that is not there ends the run as sandbox_unavailable, says what to do and leaves the server up',
    async () => {
      const dockerHost = `unix://${path.join(sockets, 'nobody.sock')}`;
      const { run, isUp } = await runOn({ env: { DOCKER_HOST: dockerHost } });
      await expectFailure(run, 'sandbox_unavailable', /Start Docker/);
      expect(isUp).toBe(true);
    },
    testMs,
  );

  test(
    'that takes calls and never answers ends the run in bounded time',
    async () => {
      await using silent = await silentEngine(sockets);
      const sandbox = dockerSandbox({
        dockerHost: silent.dockerHost,
        image: imageReference(),
        installation: 'silent',
        log: silentLog,
        answerMs: 100,
      });
      const { run, isUp } = await runOn({ overrides: { sandbox } });
      await expectFailure(run, 'sandbox_unavailable', /does not answer/);
      expect(isUp).toBe(true);
    },
    testMs,
  );

  test(
    'that goes away and comes back while the agent works costs the run nothing',
    async () => {
      await using wire = await engineWire(sockets);
      const isSeen = Promise.withResolvers<void>();
      await using other = await dockerService({ env: { DOCKER_HOST: wire.dockerHost } });
      const { runId } = await other.start({
        script: running('echo one', 'echo two'),
        async before(number) {
          if (number === 2) await isSeen.promise;
          return undefined;
        },
      });
      await other.api.seen(runId, ({ type }) => type === 'tool_result');
      wire.cut();
      wire.mend();
      isSeen.resolve();
      const run = await other.api.finished(runId);
      expect(run).toMatchObject({ status: 'succeeded', resultSummary: 'Done.' });
      expect(outputsOf(run)).toEqual(['one\n', 'two\n']);
      expect(run.events.map(({ id }) => id)).toEqual(run.events.map((_, index) => index + 1));
    },
    testMs,
  );
});

describe.concurrent('a repository', () => {
  test(
    'that is gone ends the run as repository_unavailable, before anything is started',
    async () => {
      const gone = await localRepository();
      await gone.commit({ 'a.txt': 'a' });
      const id = await server.connect(gone.url);
      await gone[Symbol.asyncDispose]();
      const run = await server.played({ script: running() }, { repositoryIds: [server.repositoryId, id] });
      await expectFailure(run, 'repository_unavailable', /demo/);
      expect(await volumesOf(run.id)).toEqual([]);
      expect(eventsOf(run, 'sandbox_ready')).toEqual([]);
    },
    testMs,
  );
});
