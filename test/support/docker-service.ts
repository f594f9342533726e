import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { type Data, openData } from '../../src/cli/data.ts';
import { compose, type Overrides, type Service } from '../../src/compose.ts';
import { type Config, readConfig } from '../../src/config.ts';
import { systemResolve } from '../../src/egress/resolve.ts';
import { jsonLog } from '../../src/kernel/log.ts';
import type { Run } from '../../src/runs/schema.ts';
import { type ManagementApi, managementApi } from './docker-api.ts';
import { removeAllOf } from './docker-engine.ts';
import { type ModelStage, type Playing, type Role, startModelStage } from './docker-model.ts';
import { localRepository } from './git.ts';

/** How long one test on the engine may take. */
export const testMs = 60_000;

export interface StartedRun {
  readonly runId: string;
  readonly playing: Playing;
}

export interface DockerService extends AsyncDisposable {
  readonly directory: string;
  readonly config: Config;
  readonly service: Service;
  readonly data: Data;
  readonly api: ManagementApi;
  readonly stage: ModelStage;
  readonly modelKey: string;
  readonly repository: Awaited<ReturnType<typeof localRepository>>;
  readonly repositoryId: string;
  /** Everything that the server has logged. */
  log(): string;
  connect(url: string, token?: string): Promise<string>;
  /** Creates an automation whose model plays the role. */
  automation(role: Role, configuration?: Record<string, unknown>): Promise<{ automationId: string; playing: Playing }>;
  /** Starts a run of an automation. */
  begin(automationId: string, message?: string): Promise<string>;
  /** Starts a run whose model plays the role; `configuration` replaces fields of the usual one. */
  start(role: Role, configuration?: Record<string, unknown>, message?: string): Promise<StartedRun>;
  played(role: Role, configuration?: Record<string, unknown>): Promise<Run>;
}

export interface DockerServiceOptions {
  readonly env?: Record<string, string>;
  readonly overrides?: Overrides;
  /** Names that lead to this machine. */
  readonly localHosts?: readonly string[];
  /** Where everything is kept; made and removed unless given. */
  readonly directory?: string;
}

/** A listening server on the real engine with the real codex; the model is a rehearsal, one script a run. */
export async function dockerService(options: DockerServiceOptions = {}): Promise<DockerService> {
  const directory = options.directory ?? (await mkdtemp(path.join(tmpdir(), 'slipway-')));
  const modelKey = `sk-model-${crypto.randomUUID()}`;
  const stage = startModelStage(modelKey);
  const repository = await localRepository();
  await repository.commit({ 'README.md': '# Demo\n', 'a.txt': 'one\n' }, 'Begin');
  const config = readConfig(
    {},
    {
      SLIPWAY_DATA_DIR: path.join(directory, 'data'),
      SLIPWAY_LISTEN: '127.0.0.1:0',
      SLIPWAY_MAX_CONCURRENT_RUNS: '3',
      OPENAI_API_KEY: modelKey,
      OPENAI_BASE_URL: stage.url,
      ...options.env,
    },
  );
  const lines: string[] = [];
  const data = await openData(config);
  const service = await compose(config, data, {
    log: jsonLog((line) => void lines.push(line)),
    resolve: async (host) => (options.localHosts?.includes(host) ? ['127.0.0.1'] : systemResolve(host)),
    ...options.overrides,
  });
  const listening = await service.server.listen(config.listen);
  const founded = await service.access.initialise({ ownerEmail: 'owner@example.test' });
  const api = managementApi(listening.url, founded.workspaceKey);
  const runIds: string[] = [];
  const connect = async (url: string, token?: string) => {
    const given = { url, ...(token === undefined ? {} : { token }) };
    return (await service.integrations.connectGit(founded.workspaceId, given)).repositories[0]?.id ?? '';
  };
  const repositoryId = await connect(repository.url);
  await service.runner.start();

  const self: DockerService = {
    directory,
    config,
    service,
    data,
    api,
    stage,
    modelKey,
    repository,
    repositoryId,
    log: () => lines.join('\n'),
    connect,
    async automation(role, configuration = {}) {
      const playing = await stage.add(role);
      const usual = { prompt: playing.prompt, repositoryIds: [repositoryId] };
      return { playing, automationId: await api.automation({ ...usual, ...configuration }) };
    },
    async begin(automationId, message) {
      const runId = await api.start(automationId, message);
      runIds.push(runId);
      return runId;
    },
    async start(role, configuration, message) {
      const { playing, automationId } = await self.automation(role, configuration);
      return { playing, runId: await self.begin(automationId, message) };
    },
    played: async (role, configuration) => api.finished((await self.start(role, configuration)).runId),
    async [Symbol.asyncDispose]() {
      await listening.stop(0);
      await service.close();
      await data.close();
      await stage.stop();
      for (const runId of runIds) await removeAllOf(runId).catch(() => {});
      await repository[Symbol.asyncDispose]();
      await rm(directory, { recursive: true, force: true });
    },
  };
  return self;
}
