import { cpSync, existsSync } from 'node:fs';
import { mkdtemp, rename, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { type Data, openData } from '../../src/cli/data.ts';
import { compose, type Overrides, type Service } from '../../src/compose.ts';
import { type Config, readConfig } from '../../src/config.ts';
import { type RehearsalModel, startRehearsalModel } from '../../src/demo/rehearsal.ts';
import type { RehearsalScript } from '../../src/demo/rehearsal-script.ts';
import { dummyHarness } from '../../src/harness/dummy.ts';
import type { HarnessId } from '../../src/harness/harness.ts';
import { hashToken, mintToken, newId } from '../../src/kernel/id.ts';
import { jsonLog } from '../../src/kernel/log.ts';
import type { Run, RunEvent } from '../../src/runs/schema.ts';
import { dummySandbox } from '../../src/sandbox/dummy.ts';
import type { DummyStepInput } from '../../src/sandbox/dummy-schema.ts';
import { createDummyWorld, type DummyWorld } from '../../src/sandbox/dummy-world.ts';
import type { Sandbox } from '../../src/sandbox/sandbox.ts';
import { localRepository } from './git.ts';
import { mortal } from './mortal.ts';

export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  // biome-ignore lint/suspicious/noExplicitAny: a test looks into answers of every shape.
  readonly body: any;
}

export interface TestService extends AsyncDisposable {
  readonly config: Config;
  readonly world: DummyWorld;
  readonly model: RehearsalModel;
  readonly repositoryId: string;
  readonly repository: Awaited<ReturnType<typeof localRepository>>;
  readonly workspaceKey: string;
  readonly workspaceId: string;
  service(): Service;
  data(): Data;
  /** Everything that was logged, over restarts. */
  log(): string;
  /** Resolves when a line that holds the text is in the log. */
  logged(text: string): Promise<void>;
  /** Sets the server's clock this much forward. */
  pass(ms: number): void;
  /** `key: null` sends no credential. */
  call(method: string, path: string, body?: unknown, options?: CallOptions): Promise<Answer>;
  /** Connects one more repository and answers its id. */
  connect(url: string, token?: string): Promise<string>;
  /** One more workspace of the organisation, and a key to it. */
  otherWorkspace(): Promise<{ workspaceId: string; key: string }>;
  secret(name: string, value: string, allowedHosts?: readonly string[]): Promise<string>;
  /** Creates an automation on the test's repository; fields given replace the usual configuration. */
  automation(configuration?: Record<string, unknown>): Promise<string>;
  /** Starts a run that plays the steps and answers its id; `automationId` instead of a configuration starts that one. */
  start(steps: readonly DummyStepInput[], automation?: Record<string, unknown> | string): Promise<string>;
  /** Continues a run with a turn that plays the steps. */
  message(runId: string, steps: readonly DummyStepInput[]): Promise<Answer>;
  cancel(runId: string): Promise<Answer>;
  run(runId: string): Promise<Run>;
  /** Resolves with the run when it has finished. */
  finished(runId: string): Promise<Run>;
  /** Starts a run, as `start`, and resolves when it has finished. */
  played(steps: readonly DummyStepInput[], automation?: Record<string, unknown> | string): Promise<Run>;
  /** Resolves with the first event of the type in the turn or a later one. */
  event(runId: string, type: RunEvent['type'], turn?: number): Promise<RunEvent>;
  /**
   * Ends this process of the server and starts the next one on what it left. `stopped` lets it finish its writing;
   * `crashed` keeps the data directory as it is in this very moment: whatever the old process writes afterwards is
   * thrown away, and its sandbox port refuses every call. The sandboxes themselves go on either way.
   */
  restart(how?: 'stopped' | 'crashed'): Promise<void>;
  /** As `restart` in two steps, for what happens while no server runs. */
  halt(how?: 'stopped' | 'crashed'): Promise<void>;
  resume(): Promise<void>;
}

export interface CallOptions {
  readonly headers?: Record<string, string>;
  readonly key?: string | null;
}

export interface TestServiceOptions {
  readonly script?: RehearsalScript;
  readonly env?: Record<string, string>;
  readonly overrides?: Overrides;
  /** Null for a deployment without a key. */
  readonly modelKey?: string | null;
  /** The key that the model takes, where it is another one. */
  readonly acceptedKey?: string;
  readonly world?: { readonly maxGraceMs?: number; readonly maxOutputBytes?: number };
  /** Puts something between the server and the dummy sandbox. */
  readonly sandbox?: (sandbox: Sandbox) => Sandbox;
}

/** The whole server on the dummy sandbox and the rehearsal model, with a workspace and a git repository. */
export async function testService(options: TestServiceOptions = {}): Promise<TestService> {
  const directory = await mkdtemp(path.join(tmpdir(), 'slipway-'));
  const world = createDummyWorld({ directory: path.join(directory, 'world'), ...options.world });
  const apiKey = options.modelKey ?? 'sk-test-key-of-the-deployment';
  const model = await startRehearsalModel({
    apiKey: options.acceptedKey ?? apiKey,
    script: options.script ?? { turns: [{ steps: [], answer: 'Fine.' }] },
  });
  const repository = await localRepository();
  await repository.commit({ 'README.md': '# Demo\n', 'a.txt': 'one\n' }, 'Begin');
  const config = readConfig(
    {},
    {
      SLIPWAY_DATA_DIR: path.join(directory, 'data'),
      ...(options.modelKey === null ? {} : { OPENAI_API_KEY: apiKey }),
      OPENAI_BASE_URL: model.url,
      ...options.env,
    },
  );
  const log = watchedLog();
  let passedMs = 0;
  const overrides: Overrides = {
    harnesses: new Map<HarnessId, ReturnType<typeof dummyHarness>>([['codex', dummyHarness('codex')]]),
    log: log.log,
    clock: () => Date.now() + passedMs,
    ...options.overrides,
  };

  async function begin() {
    const life = { ended: false };
    const data = await openData(config);
    const sandbox = mortal(dummySandbox(world), life);
    const service = await compose(config, data, { sandbox: options.sandbox?.(sandbox) ?? sandbox, ...overrides });
    return { life, data, service };
  }
  let present = await begin();
  const founded = await present.service.access.initialise({ ownerEmail: 'owner@example.test' });

  const self: TestService = {
    config,
    world,
    model,
    repository,
    repositoryId: '',
    workspaceKey: founded.workspaceKey,
    workspaceId: founded.workspaceId,
    service: () => present.service,
    data: () => present.data,
    log: log.text,
    logged: log.holds,
    pass(ms) {
      passedMs += ms;
    },
    async call(method, route, body, { headers = {}, key = founded.workspaceKey } = {}) {
      const response = await present.service.server.fetch(
        new Request(`http://localhost/api/v1${route}`, {
          method,
          headers: {
            ...(key === null ? {} : { authorization: `Bearer ${key}` }),
            ...(body === undefined ? {} : { 'content-type': 'application/json' }),
            ...headers,
          },
          ...(body === undefined ? {} : { body: JSON.stringify(body) }),
        }),
      );
      const text = await response.text();
      return {
        status: response.status,
        headers: response.headers,
        body: response.headers.get('content-type')?.startsWith('application/json') ? JSON.parse(text) : text,
      };
    },
    async connect(url, token) {
      const { repositories } = await present.service.integrations.connectGit(founded.workspaceId, {
        url,
        ...(token === undefined ? {} : { token }),
      });
      return repositories[0]?.id ?? '';
    },
    otherWorkspace: () => addWorkspace(present.data, founded),
    async secret(name, value, allowedHosts = ['api.example.com']) {
      const { status, body } = await self.call('POST', '/secrets', { name, value, allowedHosts });
      if (status !== 201) throw new Error(`no secret: ${JSON.stringify(body)}`);
      return body.secret.id;
    },
    async automation(configuration = {}) {
      const { status, body } = await self.call('POST', '/automations', {
        name: `Automation ${crypto.randomUUID()}`,
        configuration: {
          prompt: 'Do it.',
          repositoryIds: [self.repositoryId],
          triggers: [{ kind: 'schedule', frequency: 'daily', hour: 6, weekday: 1, timezone: 'UTC' }],
          ...configuration,
        },
      });
      if (status !== 201) throw new Error(`no automation: ${JSON.stringify(body)}`);
      return body.automation.id;
    },
    async start(steps, automation) {
      const automationId = typeof automation === 'string' ? automation : await self.automation(automation);
      const { status, body } = await self.call('POST', `/automations/${automationId}/runs`, {
        message: JSON.stringify({ steps }),
      });
      if (status !== 202) throw new Error(`no run: ${JSON.stringify(body)}`);
      return body.runId;
    },
    message: (runId, steps) => self.call('POST', `/runs/${runId}/messages`, { message: JSON.stringify({ steps }) }),
    cancel: (runId) => self.call('POST', `/runs/${runId}/cancel`),
    run: async (runId) => (await self.call('GET', `/runs/${runId}`)).body.run,
    async finished(runId) {
      for await (const _ of present.service.runs.follow(runId, 0, new AbortController().signal));
      return self.run(runId);
    },
    played: async (steps, automation) => self.finished(await self.start(steps, automation)),
    async event(runId, type, turn = 1) {
      for await (const event of present.service.runs.follow(runId, 0, new AbortController().signal)) {
        if (event.type === type && event.turn >= turn) return event;
      }
      throw new Error(`the run ended without ${type}`);
    },
    async halt(how = 'stopped') {
      const kept = path.join(directory, 'kept');
      if (how === 'crashed') {
        // In one go: SQLite writes in calls that do not yield, so this is what a disk holds after a kill.
        present.life.ended = true;
        cpSync(config.dataDir, kept, { recursive: true, filter: (file) => !/\/doors$|-shm$/.test(file) });
      }
      await present.service.close();
      await present.data.close();
      if (!existsSync(kept)) return;
      await rm(config.dataDir, { recursive: true });
      await rename(kept, config.dataDir);
    },
    async resume() {
      present = await begin();
      await present.service.runner.start();
    },
    async restart(how) {
      await self.halt(how);
      await self.resume();
    },
    async [Symbol.asyncDispose]() {
      world.close();
      await present.service.close();
      await present.data.close();
      await Promise.all([model.stop(), repository[Symbol.asyncDispose]()]);
      await rm(directory, { recursive: true, force: true });
    },
  };
  const connected = Object.assign(self, { repositoryId: await self.connect(repository.url) });
  await present.service.runner.start();
  return connected;
}

async function addWorkspace(data: Data, { organisationId }: { organisationId: string }) {
  const [workspaceId, userId, memberId] = [newId(), newId(), newId()];
  const key = mintToken('workspace');
  await data.database.write(async (tx) => {
    await tx.run(`INSERT INTO workspaces VALUES (?, ?, 'Other', ?, 0)`, workspaceId, organisationId, workspaceId);
    await tx.run(`INSERT INTO users VALUES (?, ?, 'Other', '-', 0)`, userId, `${userId}@example.test`);
    await tx.run(`INSERT INTO members VALUES (?, ?, ?, 'owner', 0)`, memberId, workspaceId, userId);
    await tx.run(
      `INSERT INTO tokens (id, kind, token_hash, shown_prefix, name, organisation_id, workspace_id, member_id, created_at)
       VALUES (?, 'workspace', ?, 'slk_', 'Test', ?, ?, ?, 0)`,
      newId(),
      hashToken(key),
      organisationId,
      workspaceId,
      memberId,
    );
  });
  return { workspaceId, key };
}

/** A log that a test can wait on. */
function watchedLog() {
  const lines: string[] = [];
  const watchers = new Set<() => void>();
  return {
    log: jsonLog((line) => {
      lines.push(line);
      for (const watcher of watchers) watcher();
    }),
    text: () => lines.join('\n'),
    holds(text: string): Promise<void> {
      const { promise, resolve } = Promise.withResolvers<void>();
      const look = () => {
        if (!lines.some((line) => line.includes(text))) return;
        watchers.delete(look);
        resolve();
      };
      watchers.add(look);
      look();
      return promise;
    },
  };
}
