import { describe, expect, test } from 'bun:test';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pack } from 'tar-stream';
import { dummyHarness } from '../../src/harness/dummy.ts';
import type { HarnessSignal } from '../../src/harness/harness.ts';
import { newId } from '../../src/kernel/id.ts';
import { dummySandbox } from '../../src/sandbox/dummy.ts';
import type { DummyStepInput } from '../../src/sandbox/dummy-schema.ts';
import { createDummyWorld } from '../../src/sandbox/dummy-world.ts';
import { type SandboxArchive, SandboxFailure, type SandboxProcess } from '../../src/sandbox/sandbox.ts';

/** A world with one run, played by the dummy harness; all of it is removed at the end. */
async function openWorld(options: { maxOutputBytes?: number; answer?: (request: Request) => Response } = {}) {
  const directory = await mkdtemp(join(tmpdir(), 'slipway-world-'));
  const world = createDummyWorld({ directory: join(directory, 'volumes'), ...options });
  const { answer = () => new Response('', { status: 404 }) } = options;
  const gateway = Bun.serve({ unix: join(directory, 'gateway.sock'), fetch: answer });
  const sandbox = dummySandbox(world);
  const runId = newId();
  return {
    world,
    sandbox,
    runId,
    start(prompt: string | DummyStepInput[], more: { sessionId?: string; archives?: SandboxArchive[] } = {}) {
      const launch = dummyHarness().launch({
        prompt: typeof prompt === 'string' ? prompt : `Do this:\n\n${JSON.stringify({ steps: prompt })}`,
        systemPrompt: 'Rules',
        model: 'm',
        provider: 'openai',
        maxOutputTokens: 1,
        sessionId: more.sessionId ?? null,
        gatewayUrl: 'http://127.0.0.1:3129',
        workingDirectory: '/workspace',
      });
      return sandbox.start({
        ...launch,
        runId,
        turn: 1,
        workingDirectory: '/workspace',
        archives: more.archives ?? [],
        socketDirectory: directory,
        caCertificate: '',
        limits: { memoryBytes: 1, cpus: 1, processes: 1 },
      });
    },
    async [Symbol.asyncDispose]() {
      world.close();
      await gateway.stop(true);
      await rm(directory, { recursive: true });
    },
  };
}

/** What the dummy harness makes of the process, to its end. */
async function read(process: SandboxProcess) {
  const reader = dummyHarness().reader();
  const signals: HarnessSignal[] = [];
  for await (const line of process.lines(0)) signals.push(...reader.read(line.text));
  const events = signals.flatMap((signal) => (signal.kind === 'event' ? [signal.event] : []));
  return { events, ...reader.conclude((await process.exit).code) };
}

function completed(text: string): Response {
  const events = [
    { type: 'response.output_text.delta', delta: text },
    { type: 'response.completed', response: {} },
  ];
  return new Response(events.map((event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`).join(''));
}

describe('dummy harness in the dummy sandbox', () => {
  test('echoes a plain prompt, and a follow-up names its session', async () => {
    await using run = await openWorld();
    expect((await read(await run.start('Mend it'))).answer).toBe('Mend it');
    expect((await read(await run.start('More', { sessionId: 'dummy-session' }))).answer).toBe(
      'Continuing dummy-session: More',
    );
  });

  test('says what is wrong with a script', async () => {
    await using run = await openWorld();
    const process = await run.start('{"steps":[{"do":"dance"}]}');
    expect((await process.exit).code).toBe(2);
    expect(await process.diagnostics()).toContain('steps.0.do');
  });

  test('asks the model through the gateway', async () => {
    await using run = await openWorld({ answer: () => completed('The answer') });
    expect(await read(await run.start([{ do: 'model', prompt: 'Why?' }]))).toMatchObject({
      ok: true,
      answer: 'The answer',
    });
  });

  test('a refusal of the gateway ends it with 1 and the words of the gateway', async () => {
    await using run = await openWorld({ answer: () => new Response('used up', { status: 400 }) });
    const { ok, failure } = await read(await run.start([{ do: 'model', prompt: 'Why?' }, { do: 'wait' }]));
    expect(ok).toBe(false);
    expect(failure?.message).toBe('unexpected status 400 Bad Request: used up');
  });

  test('is ended while it waits for the model', async () => {
    const asked = Promise.withResolvers<void>();
    const answer = () => {
      asked.resolve();
      return new Response(new ReadableStream());
    };
    await using run = await openWorld({ answer });
    const process = await run.start([{ do: 'model', prompt: 'Why?' }]);
    await asked.promise;
    await process.stop(1000);
    expect((await process.exit).code).toBe(143);
  });
});

describe('dummy world', () => {
  test('an archive that is a .git directory gets its work tree, and inspect sees the real diff', async () => {
    await using run = await openWorld();
    const archives = [{ path: '/workspace/repository/.git', open: () => gitDirectory() }];
    const process = await run.start([{ do: 'write', path: '/workspace/repository/a.txt', content: 'new\n' }], {
      archives,
    });
    expect(await process.exit).toMatchObject({ code: 0 });
    const result = await run.sandbox.inspect({
      runId: run.runId,
      command: ['sh', '-c', 'git -C "$1" diff', 'sh', '/workspace/repository'],
      workingDirectory: '/workspace',
      maxOutputBytes: 10_000,
      timeoutMs: 10_000,
    });
    const diff = new TextDecoder().decode(result.output);
    expect(diff).toContain('-old');
    expect(diff).toContain('+new');
  });

  test('a gate holds a program until it is opened', async () => {
    await using run = await openWorld();
    const process = await run.start([
      { do: 'gate', name: 'middle' },
      { do: 'message', text: 'through' },
    ]);
    await run.world.reached('middle');
    run.world.gate('middle').open();
    expect((await read(process)).answer).toBe('through');
  });

  test('kill ends a program at a gate as SIGKILL does', async () => {
    await using run = await openWorld();
    const process = await run.start([{ do: 'gate', name: 'never' }]);
    await run.world.reached('never');
    run.world.kill(run.runId);
    expect(await process.exit).toMatchObject({ code: 137 });
  });

  test('an engine that is down fails every call and every reader, and is told by check', async () => {
    await using run = await openWorld();
    const process = await run.start([{ do: 'wait' }]);
    const lines = process.lines(1)[Symbol.asyncIterator]().next();
    run.world.engineDown = true;
    const { sandbox, runId } = run;
    expect((await sandbox.check()).ok).toBe(false);
    const calls = [run.start('x'), sandbox.adopt(runId, 1), sandbox.hasVolumes(runId), sandbox.discard(runId)];
    for (const call of [lines, ...calls, sandbox.leftovers(), process.stop(1), process.remove()]) {
      const error = await call.then(
        () => null,
        (caught: unknown) => caught,
      );
      expect(error).toBeInstanceOf(SandboxFailure);
      expect((error as SandboxFailure).reason).toBe('unavailable');
    }
    run.world.engineDown = false;
    await process.stop(0);
  });

  test('a missing image and a start that is to fail do so, and the next start succeeds', async () => {
    await using run = await openWorld();
    run.world.imageMissing = true;
    await expect(run.start('x')).rejects.toMatchObject({ reason: 'image_missing' });
    run.world.imageMissing = false;
    run.world.failNextStart = 'out_of_disk';
    await expect(run.start('x')).rejects.toMatchObject({ reason: 'out_of_disk' });
    expect(await run.sandbox.adopt(run.runId, 1)).toBeUndefined();
    expect((await read(await run.start('x'))).answer).toBe('x');
    expect(run.world.started.map(({ turn }) => turn)).toEqual([1]);
  });

  test('a program that prints for ever runs a bounded way ahead of its reader', async () => {
    await using run = await openWorld();
    const process = await run.start([{ do: 'print_forever' }]);
    let count = 0;
    for await (const _ of process.lines(0)) {
      count += 1;
      if (count === 5000) break;
    }
    await process.stop(0);
    let printed = 0;
    for await (const line of process.lines(0)) printed = line.number;
    expect(printed).toBeGreaterThanOrEqual(5000);
    expect(printed).toBeLessThanOrEqual(6100);
  });

  test('a program that prints too much is stopped and its exit says so', async () => {
    await using run = await openWorld({ maxOutputBytes: 10_000 });
    const process = await run.start([{ do: 'print', line: 'x'.repeat(10_001) }, { do: 'wait' }]);
    expect(await process.exit).toMatchObject({ outputLimitReached: true });
  });

  test('inspect does not wait for what its command left behind', async () => {
    await using run = await openWorld();
    await (await run.start('x')).exit;
    const inspecting = run.sandbox.inspect({
      runId: run.runId,
      command: ['sh', '-c', 'sleep 3600 & wait'],
      workingDirectory: '/workspace',
      maxOutputBytes: 100,
      timeoutMs: 50,
    });
    await expect(inspecting).rejects.toBeInstanceOf(SandboxFailure);
  });
});

/** The `.git` directory of a repository whose only commit holds `a.txt` with the line `old`. */
function gitDirectory(): ReadableStream<Uint8Array> {
  const filled = Promise.withResolvers<AsyncIterator<Uint8Array>>();
  makeGitTar().then((tar) => filled.resolve(tar[Symbol.asyncIterator]()), filled.reject);
  return new ReadableStream({
    async pull(controller) {
      const next = await (await filled.promise).next();
      if (next.done) controller.close();
      else controller.enqueue(new Uint8Array(next.value));
    },
  });
}

async function makeGitTar(): Promise<AsyncIterable<Uint8Array>> {
  const directory = await mkdtemp(join(tmpdir(), 'slipway-git-'));
  await Bun.write(join(directory, 'a.txt'), 'old\n');
  const author = ['-c', 'user.name=Test', '-c', 'user.email=test@example.test'];
  for (const args of [
    ['init', '-q'],
    ['add', '.'],
    [...author, 'commit', '-q', '-m', 'first'],
  ]) {
    await Bun.spawn(['git', ...args], { cwd: directory }).exited;
  }
  const tar = pack();
  for (const path of new Bun.Glob('**').scanSync({ cwd: join(directory, '.git'), dot: true })) {
    // A clone without a checkout has none: git makes it with the work tree.
    if (path === 'index') continue;
    tar.entry({ name: path }, await readFile(join(directory, '.git', path)));
  }
  tar.entry({ name: 'refs/', type: 'directory' });
  tar.finalize();
  await rm(directory, { recursive: true });
  return tar as AsyncIterable<Uint8Array>;
}
