import { randomBytes } from 'node:crypto';
import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import type { z } from 'zod';
import { readArguments } from '../cli/arguments.ts';
import type { Command, Terminal } from '../cli/command.ts';
import { openData } from '../cli/data.ts';
import { toldToStop } from '../cli/signals.ts';
import { compose, type Service } from '../compose.ts';
import { type Config, readConfig } from '../config.ts';
import { systemResolve } from '../egress/resolve.ts';
import { jsonLog } from '../kernel/log.ts';
import type { EgressEntry, Run, RunEvent, RunEventData } from '../runs/schema.ts';
import { type ApiClient, apiClient } from './client.ts';
import { prepare } from './prepare.ts';
import { type RehearsalModel, startRehearsalModel } from './rehearsal.ts';
import { makeSampleRepository, statusHost } from './sample.ts';
import { type Presenter, presenter } from './show.ts';
import { startStatusService } from './status.ts';
import { taskPrompt, taskScript } from './task.ts';

const usage = `slipway demo [--exit] [--data-dir DIR] [--listen HOST:PORT]

  --exit               end with the run; the exit status is 0 only if it succeeded
  --data-dir DIR       where the demo keeps its data (otherwise a new directory below .slipway)
  --listen HOST:PORT   where to listen (otherwise 127.0.0.1:4800, or a free port where that one is taken)`;

const options = {
  exit: { type: 'boolean' },
  'data-dir': { type: 'string' },
  listen: { type: 'string' },
} as const;

export const command: Command = {
  name: 'demo',
  summary: 'Set everything up and let an agent mend a failing test, to see how it works',
  usage,
  async run(args, terminal) {
    const { values } = readArguments(args, options);
    const show = presenter(terminal.out, process.stdout.isTTY === true);
    const dataDir = path.resolve(values['data-dir'] ?? path.join('.slipway', `demo-${Date.now()}`));
    show.title('Slipway demo');
    await mkdir(dataDir, { recursive: true, mode: 0o700 });
    const usual = readConfig({ dataDir, listen: values.listen });
    const image = await prepare({ config: usual, say: show.note });
    show.step(`Docker engine and sandbox image are there (${image})`);
    const stage = await setStage(usual, dataDir, show);
    try {
      const finished = await perform(stage, show);
      if (values.exit) return finished.status === 'succeeded' ? 0 : 1;
      await stayUp(stage, show, terminal);
      return 0;
    } finally {
      await stage.close();
    }
  },
};

/** Everything that the demo has set up and that ends with it. */
interface Stage {
  readonly service: Service;
  readonly api: ApiClient;
  readonly url: string;
  readonly credentials: { readonly ownerEmail: string; readonly ownerPassword: string; readonly workspaceKey: string };
  readonly dataDir: string;
  readonly statusPort: number;
  readonly repositoryId: string;
  readonly rehearsal: RehearsalModel | null;
  /** Whether the status service was given the real token. */
  tokenArrived(): boolean;
  close(): Promise<void>;
}

async function setStage(usual: Config, dataDir: string, show: Presenter): Promise<Stage> {
  const token = `st_${randomBytes(24).toString('base64url')}`;
  const status = await startStatusService(path.join(dataDir, 'status-service'), token);
  const rehearsal = usual.modelKeys.openai === undefined ? await startRehearsal(taskScript(status.port)) : null;
  const config: Config = {
    ...usual,
    egressAllowPrivate: [...usual.egressAllowPrivate, `${statusHost}:${status.port}`],
    egressExtraCa: status.caFile,
    ...(rehearsal
      ? {
          modelKeys: { ...usual.modelKeys, openai: rehearsal.key },
          modelBaseUrls: { ...usual.modelBaseUrls, openai: rehearsal.model.url },
        }
      : {}),
  };
  const data = await openData(config);
  const log = jsonLog((line) => void logFile.write(`${line}\n`));
  const logFile = Bun.file(path.join(dataDir, 'server.log')).writer();
  const service = await compose(config, data, {
    log,
    resolve: async (host) => (host === statusHost ? ['127.0.0.1'] : systemResolve(host)),
  });
  const listening = await listenSomewhere(service, config);
  await service.runner.start();
  const founded = await service.access.initialise({ ownerEmail: 'owner@example.test' });
  show.step(`The server listens on ${listening.url}`);
  const api = apiClient(listening.url, founded.workspaceKey);

  const repositoryUrl = await makeSampleRepository(path.join(dataDir, 'sample', 'receipts'));
  const connected = await service.integrations.connectGit(founded.workspaceId, { url: repositoryUrl });
  show.step(`Connected the repository ${connected.repositories[0]?.fullName}, whose tests fail`);
  await api.post('/secrets', { name: 'STATUS_TOKEN', value: token, allowedHosts: [statusHost] });
  show.step(`Stored the secret STATUS_TOKEN, allowed for ${statusHost} only`);
  if (rehearsal) {
    show.warn('! OPENAI_API_KEY is not set: a rehearsal model that follows a script stands in for the real one.');
    show.warn('  Codex, container, git, gateway, proxy and substitution are real.');
  } else show.step('OPENAI_API_KEY is set: the model is the real one, and this run costs money');
  return {
    service,
    api,
    url: listening.url,
    credentials: founded,
    dataDir,
    statusPort: status.port,
    repositoryId: connected.repositories[0]?.id ?? '',
    rehearsal: rehearsal?.model ?? null,
    tokenArrived: () => status.tokensSeen.includes(token),
    async close() {
      await listening.stop(1000);
      await service.close();
      await data.close();
      await Promise.all([status.stop(), rehearsal?.model.stop(), logFile.end()]);
    },
  };
}

async function startRehearsal(script: Parameters<typeof startRehearsalModel>[0]['script']) {
  const key = `sk-rehearsal-${randomBytes(16).toString('hex')}`;
  return { key, model: await startRehearsalModel({ apiKey: key, script }) };
}

/** The usual address may be taken by a server of the same machine: then any free port will do. */
async function listenSomewhere({ server }: Service, { listen }: Config) {
  try {
    return await server.listen(listen);
  } catch (error) {
    if (listen.port !== 4800) throw error;
    return server.listen({ ...listen, port: 0 });
  }
}

/** Creates the automation, runs it, and shows everything that there is to see of the run. */
async function perform({ api, statusPort, repositoryId, tokenArrived }: Stage, show: Presenter): Promise<Run> {
  const { secrets } = await api.get<{ secrets: { id: string }[] }>('/secrets');
  const { automation } = await api.post<{ automation: { id: string; name: string } }>('/automations', {
    name: 'Mend the tests',
    configuration: {
      prompt: taskPrompt(statusPort),
      repositoryIds: [repositoryId],
      triggers: [{ kind: 'schedule', frequency: 'daily', hour: 6, weekday: 1, timezone: 'UTC' }],
      workspaceSecretIds: secrets.map(({ id }) => id),
      maxRuntimeSeconds: 600,
    },
  });
  show.step(`Created the automation "${automation.name}"`);
  show.title('Transcript');
  const { runId } = await api.post<{ runId: string }>(`/automations/${automation.id}/runs`, {});
  let diff: RunEventData['diff'] | null = null;
  for await (const event of api.follow<RunEvent>(`/runs/${runId}/stream`)) {
    if (event.type === 'diff') diff = event.data as unknown as RunEventData['diff'];
    else show.event(event);
  }
  const { run } = await api.get<{ run: Run }>(`/runs/${runId}`);
  show.result(run, diff);
  const { requests } = await api.get<{ requests: z.infer<typeof EgressEntry>[] }>(`/runs/${runId}/egress?pageSize=50`);
  show.egress(requests);
  show.note(
    tokenArrived()
      ? 'The status service was given the real token; the agent only ever saw the placeholder.'
      : 'The status service was not given the token.',
  );
  return run;
}

/** Keeps the server up until it is told to stop. */
async function stayUp(
  { url, credentials, dataDir, rehearsal }: Stage,
  show: Presenter,
  terminal: Terminal,
): Promise<void> {
  show.title('The server stays up. Press Ctrl-C to stop it.');
  terminal.out(`  Address        ${url}`);
  terminal.out(`  Workspace key  ${credentials.workspaceKey}`);
  terminal.out(`  Owner          ${credentials.ownerEmail}, password ${credentials.ownerPassword}`);
  terminal.out(`  Data           ${dataDir}`);
  if (rehearsal) terminal.out('  Model          the rehearsal; it says the same in every run');
  terminal.out(`\n  Try: curl -H "Authorization: Bearer ${credentials.workspaceKey}" ${url}/api/v1/automations`);
  await toldToStop();
}
