import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { silentLog } from '../../src/kernel/log.ts';
import { dockerSandbox } from '../../src/sandbox/docker.ts';
import { asFailure, ask } from '../../src/sandbox/docker-engine.ts';
import { SandboxFailure, type SandboxSpec } from '../../src/sandbox/sandbox.ts';

let directory: string;
beforeAll(async () => {
  directory = await mkdtemp(path.join(tmpdir(), 'slipway-engine-'));
});
afterAll(() => rm(directory, { recursive: true, force: true }));

const sandboxAt = (dockerHost: string) =>
  dockerSandbox({ dockerHost, image: 'slipway-sandbox:x', installation: 'test', log: silentLog });

/** An engine that answers every call in one way. */
function engineThat(answer: (request: Request) => Response | Promise<Response>) {
  const unix = path.join(directory, `${crypto.randomUUID().slice(0, 8)}.sock`);
  const server = Bun.serve({ unix, fetch: answer });
  return { sandbox: sandboxAt(`unix://${unix}`), [Symbol.asyncDispose]: () => server.stop(true) };
}

const spec: SandboxSpec = {
  runId: 'run',
  turn: 1,
  command: ['true'],
  workingDirectory: '/workspace',
  environment: {},
  files: [],
  archives: [],
  socketDirectory: '/door',
  caCertificate: '',
  limits: { memoryBytes: 1, cpus: 1, processes: 1 },
};

async function failureOf(work: Promise<unknown>): Promise<SandboxFailure> {
  const error = await work.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(SandboxFailure);
  return error as SandboxFailure;
}

describe('an engine that cannot be reached', () => {
  test('is unavailable, whatever is asked of it, and the message says what to do', async () => {
    const sandbox = sandboxAt(`unix://${directory}/nobody.sock`);
    const asked = [
      sandbox.start(spec),
      sandbox.adopt('run', 1),
      sandbox.discard('run'),
      sandbox.hasVolumes('run'),
      sandbox.leftovers(),
      sandbox.inspect({ runId: 'run', command: ['true'], workingDirectory: '/', maxOutputBytes: 1, timeoutMs: 1000 }),
    ];
    for (const work of asked) {
      const { reason, message } = await failureOf(work);
      expect([reason, message]).toEqual([
        'unavailable',
        'The Docker engine cannot be reached. Start Docker, or set DOCKER_HOST to where it listens.',
      ]);
    }
    expect(await sandbox.check()).toMatchObject({ ok: false, reason: expect.stringContaining('Start Docker') });
  });

  test('because DOCKER_HOST has a form that is not known is told so', async () => {
    const { message } = await failureOf(sandboxAt('ssh://somewhere').start(spec));
    expect(message).toBe('DOCKER_HOST must be unix:///PATH or tcp://HOST:PORT.');
  });

  test('because it hangs is unavailable after a while', async () => {
    const { reason, message } = await failureOf(ask(new Promise(() => {}), 1));
    expect([reason, message]).toEqual(['unavailable', 'The Docker engine does not answer. Restart it.']);
  });

  test('because it ends in the middle of an answer is unavailable', async () => {
    const server = Bun.listen({
      unix: path.join(directory, 'half.sock'),
      socket: { data: (socket) => void socket.end() },
    });
    const { reason } = await failureOf(sandboxAt(`unix://${directory}/half.sock`).start(spec));
    server.stop(true);
    expect(reason).toBe('unavailable');
  });

  test('by this user is told apart', () => {
    const refused = Object.assign(new Error('connect EACCES /run/docker.sock'), { code: 'EACCES' });
    expect(asFailure(refused)).toMatchObject({
      reason: 'unavailable',
      message: expect.stringContaining('group docker'),
    });
  });
});

describe('an engine that refuses', () => {
  const refusal = (status: number, message: string) => () => Response.json({ message }, { status });

  test('for want of the image says how to build it', async () => {
    await using engine = engineThat(refusal(404, 'No such image: slipway-sandbox:x'));
    const { reason, message } = await failureOf(engine.sandbox.start(spec));
    expect([reason, message]).toEqual([
      'image_missing',
      'The sandbox image is missing. Build it with `slipway sandbox build`.',
    ]);
  });

  test('for want of space on its disk is told apart', async () => {
    await using engine = engineThat(refusal(500, 'write /var/lib/docker/x: no space left on device'));
    const { reason, message } = await failureOf(engine.sandbox.start(spec));
    expect([reason, message]).toEqual(['out_of_disk', 'The disk of the Docker engine is full. Free space there.']);
  });

  test('for another reason keeps its words, which may hold paths, to the log', async () => {
    await using engine = engineThat(refusal(500, 'mount /srv/secret/path: permission denied'));
    const { reason, message } = await failureOf(engine.sandbox.start(spec));
    expect(reason).toBe('failed');
    expect(message).not.toContain('/srv');
  });

  test('to show the image is there but lacks it: the check says how to build it', async () => {
    await using engine = engineThat((request) =>
      new URL(request.url).pathname.endsWith('/version')
        ? Response.json({ Version: '20.10' })
        : Response.json({ message: 'No such image' }, { status: 404 }),
    );
    expect(await engine.sandbox.check()).toEqual({
      ok: false,
      reason: 'The sandbox image is missing. Build it with `slipway sandbox build`.',
    });
  });
});
