import { afterAll, describe, expect, test } from 'bun:test';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { RehearsalScript } from '../../src/demo/rehearsal-script.ts';
import type { Run } from '../../src/runs/schema.ts';
import { eventsOf, outputsOf } from '../support/docker-api.ts';
import { type ServerProcess, slipwayProgram } from '../support/docker-child.ts';
import {
  containerOf,
  containersOf,
  engine,
  removeAllOf,
  volumesOf,
  withoutContainers,
} from '../support/docker-engine.ts';
import { type Role, startModelStage } from '../support/docker-model.ts';
import { testMs } from '../support/docker-service.ts';
import { engineWire } from '../support/docker-wire.ts';
import { localRepository } from '../support/git.ts';
import { gitServer } from '../support/gitserver.ts';

/** Installations of tests that have not come to their end: those of a test that took too long, at last. */
const made = new Set<AsyncDisposable>();
afterAll(async () => {
  for (const place of made) await place[Symbol.asyncDispose]();
});

/** An installation set up by the commands, whose server can be killed and started again. */
async function installation() {
  const directory = await mkdtemp(path.join(tmpdir(), 'slipway-'));
  const dataDir = path.join(directory, 'data');
  await mkdir(dataDir);
  const wire = await engineWire(directory);
  const modelKey = `sk-model-${crypto.randomUUID()}`;
  const stage = startModelStage(modelKey);
  const repository = await localRepository();
  await repository.commit({ 'a.txt': 'one\n' }, 'Begin');
  let gate: Promise<void> = Promise.resolve();
  let asked = () => {};
  const git = gitServer({
    root: path.dirname(repository.path),
    async answer() {
      asked();
      await gate;
      return undefined;
    },
  });
  const program = slipwayProgram(dataDir, {
    DOCKER_HOST: wire.dockerHost,
    OPENAI_API_KEY: modelKey,
    OPENAI_BASE_URL: stage.url,
    SLIPWAY_EGRESS_ALLOW_PRIVATE: new URL(git.origin).host,
  });
  const { workspaceKey } = await program.json('init', '--owner-email', 'owner@example.test');
  const { repositories } = await program.json('integration', 'connect', 'git', '--url', `${git.origin}/demo`);
  let server: ServerProcess = await program.serve(workspaceKey);
  const runIds: string[] = [];

  const place = {
    wire,
    api: () => server.api,
    /** Starts a run whose model plays the role. */
    async start(role: Role) {
      const playing = await stage.add(role);
      const automationId = await server.api.automation({
        prompt: playing.prompt,
        repositoryIds: [repositories[0].id],
      });
      const runId = await server.api.start(automationId);
      runIds.push(runId);
      return { runId, playing };
    },
    /** From now on the host of the repository does not answer until `open` is called; `reached` tells of a call. */
    holdRepository() {
      const held = Promise.withResolvers<void>();
      const reached = Promise.withResolvers<void>();
      gate = held.promise;
      asked = reached.resolve;
      return { reached: reached.promise, open: held.resolve };
    },
    async end(signal: 'SIGKILL' | 'SIGTERM') {
      await server.end(signal);
    },
    async startAgain() {
      server = await program.serve(workspaceKey);
    },
    async [Symbol.asyncDispose]() {
      if (!made.delete(place)) return;
      await server.end('SIGKILL');
      for (const runId of runIds) await removeAllOf(runId).catch(() => {});
      await stage.stop();
      await git[Symbol.asyncDispose]();
      await wire[Symbol.asyncDispose]();
      await repository[Symbol.asyncDispose]();
      await rm(directory, { recursive: true, force: true });
    },
  };
  made.add(place);
  return place;
}
type Installation = Awaited<ReturnType<typeof installation>>;

/** A command that goes on only when it is let go from outside, past the server. */
const waiting = 'echo before; until [ -e /workspace/go ]; do sleep 0.05; done; echo after';
const letGo = async (runId: string) => {
  const exec = await (await containerOf(runId, 'agent')).exec({ Cmd: ['touch', '/workspace/go'], User: '10001' });
  await exec.start({});
};

/** An answer of the model that begins and says nothing more until the other side goes away. */
const begunAnswer = (gone: AbortSignal, hungUp: () => void) =>
  new Response(
    new ReadableStream({
      start(controller) {
        const created = { type: 'response.created', response: { id: 'resp_begun', status: 'in_progress' } };
        controller.enqueue(new TextEncoder().encode(`event: ${created.type}\ndata: ${JSON.stringify(created)}\n\n`));
        gone.addEventListener('abort', hungUp, { once: true });
      },
    }),
    { headers: { 'content-type': 'text/event-stream' } },
  );

const playing = (...commands: string[]): RehearsalScript => ({
  turns: [{ steps: commands.map((run) => ({ run })), answer: 'Done.' }],
});

/** Nothing of the transcript is lost or doubled, the raw stream included. */
async function expectWhole({ api }: Installation, run: Run, outputs: readonly string[], requests: number) {
  expect(run).toMatchObject({ status: 'succeeded', phase: null, resultSummary: 'Done.' });
  expect(run.events.map(({ id }) => id)).toEqual(run.events.map((_, index) => index + 1));
  expect(outputsOf(run)).toEqual([...outputs]);
  expect(eventsOf(run, 'tool_call')).toHaveLength(outputs.length);
  for (const type of ['sandbox_ready', 'diff', 'run_succeeded'] as const) expect(eventsOf(run, type)).toHaveLength(1);
  expect(run.inferenceUsage?.requests).toBe(requests);
  const raw = await api().call('GET', `/runs/${run.id}/turns/1/raw`);
  const lines = raw.text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line));
  expect(lines.filter(({ type }) => type === 'thread.started')).toHaveLength(1);
  expect(lines.filter(({ type }) => type === 'turn.completed')).toHaveLength(1);
  expect(lines.filter(({ type, item }) => type === 'item.completed' && item.type === 'command_execution')).toHaveLength(
    outputs.length,
  );
  await withoutContainers(run.id);
  expect(await volumesOf(run.id)).toHaveLength(2);
}

describe.concurrent('a server that was killed', () => {
  test(
    'the moment after it took a run works on it when it is started again',
    async () => {
      await using place = await installation();
      const { runId, playing: model } = await place.start({ script: playing('echo one') });
      await place.end('SIGKILL');
      await place.startAgain();
      const run = await place.api().finished(runId);
      await expectWhole(place, run, ['one\n'], model.arrived());
    },
    testMs,
  );

  test(
    'while it read the repository begins the run again',
    async () => {
      await using place = await installation();
      const repository = place.holdRepository();
      const { runId, playing: model } = await place.start({ script: playing('echo one') });
      await repository.reached;
      expect(await place.api().run(runId)).toMatchObject({ status: 'running', phase: 'checking_out' });
      await place.end('SIGKILL');
      repository.open();
      await place.startAgain();
      const run = await place.api().finished(runId);
      await expectWhole(place, run, ['one\n'], model.arrived());
      expect(eventsOf(run, 'run_started').map(({ data }) => data?.attempt)).toEqual([1, 2]);
    },
    testMs,
  );

  test(
    'while it started the sandbox begins the run again, with a checkout of its own',
    async () => {
      await using place = await installation();
      // A run that has ended tells that the self-test is over: what is held is the second run's start, not its.
      await place.api().finished((await place.start({ script: playing('true') })).runId);
      const held = place.wire.heldAt(/^POST \/(?:v[\d.]+\/)?containers\/[^/]+\/start/);
      const { runId, playing: model } = await place.start({ script: playing('cat a.txt') });
      await held;
      await place.end('SIGKILL');
      expect((await containersOf(runId)).map(({ State }) => State)).toContain('created');
      await place.startAgain();
      const run = await place.api().finished(runId);
      await expectWhole(place, run, ['one\n'], model.arrived());
    },
    testMs,
  );

  test(
    'while the agent worked takes the agent over and misses nothing that it did meanwhile',
    async () => {
      await using place = await installation();
      const { runId, playing: model } = await place.start({ script: playing('echo one', waiting, 'echo three') });
      await place
        .api()
        .seen(runId, ({ type, data }) => type === 'tool_call' && JSON.stringify(data).includes('before'));
      const before = await place.api().run(runId);
      await place.end('SIGKILL');
      // Codex comes to the end of its command while no server is there, and waits at the door for its next answer.
      await letGo(runId);
      await place.startAgain();
      const run = await place.api().finished(runId);
      await expectWhole(place, run, ['one\n', 'before\nafter\n', 'three\n'], model.arrived());
      expect(run.events.slice(0, before.events.length)).toEqual(before.events);
      expect(eventsOf(run, 'run_started')).toHaveLength(1);
    },
    testMs,
  );

  for (const signal of ['SIGKILL', 'SIGTERM'] as const) {
    test(
      `by ${signal} in the middle of an answer of the model is asked again and the run goes on`,
      async () => {
        await using place = await installation();
        const hungUp = Promise.withResolvers<void>();
        const { runId, playing: model } = await place.start({
          script: playing('echo one', 'echo two'),
          before: (number, gone) => (number === 2 ? begunAnswer(gone, hungUp.resolve) : undefined),
        });
        await model.arrival(2);
        await place.end(signal);
        await hungUp.promise;
        expect((await (await containerOf(runId, 'agent')).inspect()).State.Running).toBe(true);
        await place.startAgain();
        const run = await place.api().finished(runId);
        // The answer that was cut counts: it had reached the provider.
        await expectWhole(place, run, ['one\n', 'two\n'], 4);
        expect(model.arrived()).toBe(4);
        const usage = eventsOf(run, 'usage').map(({ data }) => data as Record<string, number>);
        const sum = (field: string) => usage.reduce((total, data) => total + (data[field] ?? 0), 0);
        expect(usage).toHaveLength(3);
        expect(run.inferenceUsage).toMatchObject({
          inputTokens: sum('inputTokens'),
          outputTokens: sum('outputTokens'),
          costMicros: sum('costMicros'),
        });
      },
      testMs,
    );
  }

  test(
    'while it compared the workspace finishes the run',
    async () => {
      await using place = await installation();
      const held = place.wire.heldAt(/"slipway\.role":"inspect"/);
      const { runId, playing: model } = await place.start({ script: playing('echo two > a.txt; echo done') });
      await held;
      expect(await place.api().run(runId)).toMatchObject({ status: 'running', phase: 'finishing' });
      await place.end('SIGKILL');
      await place.startAgain();
      const run = await place.api().finished(runId);
      await expectWhole(place, run, ['done\n'], model.arrived());
      expect(eventsOf(run, 'diff')[0]?.data).toMatchObject({ files: [{ path: 'a.txt', additions: 1, deletions: 1 }] });
    },
    testMs,
  );

  test(
    'ends the run as worker_lost where the sandbox is gone, and tells what it had seen',
    async () => {
      await using place = await installation();
      const { runId } = await place.start({ script: playing('echo one', waiting) });
      await place
        .api()
        .seen(runId, ({ type, data }) => type === 'tool_call' && JSON.stringify(data).includes('before'));
      const before = await place.api().run(runId);
      await place.end('SIGKILL');
      for (const { Id } of await containersOf(runId)) await engine.getContainer(Id).remove({ force: true });
      await place.startAgain();
      const run = await place.api().finished(runId);
      expect(run).toMatchObject({ status: 'failed', phase: null, failureCategory: 'worker_lost' });
      expect(run.events.slice(0, before.events.length)).toEqual(before.events);
      expect(run.events.map(({ id }) => id)).toEqual(run.events.map((_, index) => index + 1));
      expect(run.events.at(-1)?.type).toBe('run_failed');
    },
    testMs,
  );

  test(
    'stops a run that was cancelled just before',
    async () => {
      await using place = await installation();
      const held = place.wire.heldAt(/^POST \/(?:v[\d.]+\/)?containers\/[^/]+\/stop/);
      const { runId } = await place.start({ script: playing(waiting) });
      await place.api().seen(runId, ({ type }) => type === 'tool_call');
      await place.api().must(200, 'POST', `/runs/${runId}/cancel`);
      await held;
      await place.end('SIGKILL');
      await place.startAgain();
      const run = await place.api().finished(runId);
      expect(run).toMatchObject({ status: 'cancelled', phase: null });
      expect(eventsOf(run, 'cancel_requested')).toHaveLength(1);
      await withoutContainers(runId);
    },
    testMs,
  );
});
