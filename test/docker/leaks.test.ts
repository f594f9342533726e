import { afterAll, beforeAll, expect, test } from 'bun:test';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { openAuthority } from '../../src/egress/authority.ts';
import type { Run } from '../../src/runs/schema.ts';
import { demultiplex } from '../../src/sandbox/docker-stream.ts';
import { outputsOf } from '../support/docker-api.ts';
import { containerOf } from '../support/docker-engine.ts';
import { type DockerService, dockerService, testMs } from '../support/docker-service.ts';
import { localRepository } from '../support/git.ts';
import { gitServer } from '../support/gitserver.ts';

const echoHost = 'echo.example.test';
const secretValue = 'echo "token" 0123456789/+= äö';
const gitToken = 'ghp_abcdefghijklmnopqrstuvwxyz0123456789';
const places = '/state /workspace /tmp /home/agent /run/slipway';

let server: DockerService;
let origin: ReturnType<typeof Bun.serve>;
let git: ReturnType<typeof gitServer>;
let repository: Awaited<ReturnType<typeof localRepository>>;
let run: Run;
/** Everything that was found inside while the agent worked, and what the engine knows of the container. */
let inside: Buffer;
let insidePlanted: Buffer;
let engineSide: string;
let sentToModel: () => string[];
const tokensGiven: string[] = [];

/** A value as it is, and in the forms in which it travels. */
const formsOf = (value: string): string[] => [
  ...new Set([
    value,
    JSON.stringify(value).slice(1, -1),
    encodeURIComponent(value),
    Buffer.from(value).toString('base64'),
    Buffer.from(`x-access-token:${value}`).toString('base64'),
  ]),
];
const foundIn = (hay: Buffer | string): string[] =>
  [secretValue, gitToken, server.modelKey].filter((value) =>
    formsOf(value).some((form) => Buffer.from(hay as string).includes(form)),
  );

/** All files of the agent's places, and the environment and command of each process, as one heap of bytes. */
async function lookInside(runId: string, before = 'true', env: string[] = []): Promise<Buffer> {
  const agent = await containerOf(runId, 'agent');
  const script = `${before}; tar cf - ${places} 2>/dev/null; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null`;
  const exec = await agent.exec({ Cmd: ['/bin/sh', '-c', script], Env: env, AttachStdout: true, User: '10001' });
  const parts: Uint8Array[] = [];
  const stream = (await exec.start({})) as unknown as AsyncIterable<Uint8Array>;
  for await (const part of demultiplex(stream, 'stdout')) parts.push(Uint8Array.from(part));
  return Buffer.concat(parts);
}

/** Every file of the data directory but the master key. */
async function dataDirectory(): Promise<{ names: string[]; bytes: Buffer }> {
  const entries = await readdir(server.config.dataDir, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile() && entry.name !== 'master.key');
  const names = files.map(({ parentPath, name }) => path.join(parentPath, name));
  return { names, bytes: Buffer.concat(await Promise.all(names.map((name) => readFile(name)))) };
}

beforeAll(async () => {
  const directory = await mkdtemp(path.join(tmpdir(), 'slipway-'));
  const authority = await openAuthority(path.join(directory, 'origins'));
  const caFile = path.join(directory, 'origins.pem');
  await Bun.write(caFile, authority.certificate);
  origin = Bun.serve({
    hostname: '127.0.0.1',
    port: 0,
    tls: await authority.leafFor(echoHost),
    fetch(request) {
      const given = Buffer.from(request.headers.get('x-token') ?? '', 'latin1').toString();
      tokensGiven.push(given);
      const headers = { 'x-echo': request.headers.get('x-token') ?? '' };
      return new Response(`${given}\n${JSON.stringify(given)}\n${encodeURIComponent(given)}\n`, { headers });
    },
  });
  repository = await localRepository();
  await repository.commit({ 'plan.txt': 'a plan\n' });
  git = gitServer({
    root: path.dirname(repository.path),
    token: gitToken,
    hostname: '127.0.0.2',
    tls: await authority.leafFor('127.0.0.2'),
  });
  server = await dockerService({
    directory,
    localHosts: [echoHost],
    env: {
      SLIPWAY_EGRESS_ALLOW_PRIVATE: `${echoHost}:${origin.port},${new URL(git.origin).host}`,
      SLIPWAY_EGRESS_EXTRA_CA: caFile,
    },
  });
  const repositoryId = await server.connect(`${git.origin}/demo`, gitToken);
  const secretId = await server.api.secret('ECHO_TOKEN', secretValue, [echoHost]);
  const looked = Promise.withResolvers<void>();
  const ask = `curl -si -H "x-token: $ECHO_TOKEN" https://${echoHost}:${origin.port}/ | tee answer.txt`;
  const started = await server.start(
    {
      script: {
        turns: [
          {
            steps: [{ run: ask }, { run: 'git fetch -v origin 2>&1' }, { run: 'env' }],
            answer: (outputs) => outputs.join('\n'),
          },
        ],
      },
      async before(number) {
        if (number === 4) await looked.promise;
        return undefined;
      },
    },
    { repositoryIds: [repositoryId], workspaceSecretIds: [secretId] },
  );
  const { runId } = started;
  sentToModel = () => started.playing.model.requests.map(({ body }) => JSON.stringify(body));
  let results = 0;
  await server.api.seen(runId, ({ type }) => {
    results += type === 'tool_result' ? 1 : 0;
    return results === 3;
  });
  inside = await lookInside(runId);
  const agent = await containerOf(runId, 'agent');
  const door = await containerOf(runId, 'door');
  const log = await agent.logs({ stdout: true, stderr: true, follow: false });
  engineSide = JSON.stringify([await agent.inspect(), await door.inspect(), String(log)]);
  const plant = 'printf %s "$PLANTED" > /tmp/planted; unset PLANTED';
  insidePlanted = await lookInside(runId, plant, [`PLANTED=${gitToken}`]);
  await (await agent.exec({ Cmd: ['rm', '/tmp/planted'], User: '10001' })).start({});
  looked.resolve();
  run = await server.api.finished(runId);
}, testMs);

afterAll(async () => {
  await server?.[Symbol.asyncDispose]();
  await origin?.stop(true);
  await git?.[Symbol.asyncDispose]();
  await repository?.[Symbol.asyncDispose]();
});

test('the values were used: the host and the repository were given the real ones', () => {
  expect(run.status).toBe('succeeded');
  expect(tokensGiven).toEqual([secretValue]);
  expect(outputsOf(run)[1]).toContain('up to date');
  expect(git.seen.some(({ authorization }) => authorization !== null)).toBe(true);
});

test('what a host echoes, in a header or in its body in any form, is a placeholder again', () => {
  const [answer = ''] = outputsOf(run);
  expect(answer).toContain('x-echo: ');
  expect(foundIn(answer)).toEqual([]);
  const placeholder = /^ECHO_TOKEN=(.+)$/m.exec(outputsOf(run)[2] ?? '')?.[1] ?? 'none';
  expect(answer.split(placeholder).length - 1).toBe(4);
});

test('no real value is in the files, the environment or the commands of the sandbox', () => {
  expect(inside.includes('answer.txt')).toBe(true);
  expect(inside.includes('CODEX_HOME=')).toBe(true);
  expect(foundIn(inside)).toEqual([]);
});

test('a value that is planted in the sandbox is found, so the search works', () => {
  expect(foundIn(insidePlanted)).toEqual([gitToken]);
});

test('no real value is in what the engine knows of the containers', () => {
  expect(engineSide).toContain('ECHO_TOKEN=');
  expect(foundIn(engineSide)).toEqual([]);
});

test('no real value is in the transcript, the raw stream, the ledger or any list', async () => {
  const answers = await Promise.all(
    [`/runs/${run.id}`, `/runs/${run.id}/turns/1/raw`, `/runs/${run.id}/egress`, '/secrets', '/integrations'].map(
      (route) => server.api.call('GET', route),
    ),
  );
  expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200, 200]);
  for (const { text } of answers) expect(foundIn(text)).toEqual([]);
});

test('no real value is in what the model was sent', () => {
  expect(sentToModel()).toHaveLength(4);
  for (const body of sentToModel()) expect(foundIn(body)).toEqual([]);
});

test('no real value is in the log of the server', () => {
  expect(foundIn(server.log())).toEqual([]);
});

test('no real value is in plain text in the data directory, and one that is planted there is found', async () => {
  const { names, bytes } = await dataDirectory();
  expect(names.map((name) => path.basename(name))).toContain('slipway.db');
  expect(names.some((name) => name.includes('/mirrors/'))).toBe(true);
  expect(names.some((name) => name.endsWith('turn-1.jsonl'))).toBe(true);
  expect(foundIn(bytes)).toEqual([]);
  const planted = path.join(server.config.dataDir, 'planted');
  await writeFile(planted, `x${encodeURIComponent(secretValue)}`);
  expect(foundIn((await dataDirectory()).bytes)).toEqual([secretValue]);
  await rm(planted);
});
