import { randomBytes } from 'node:crypto';
import path from 'node:path';
import { accessOperations } from './access/operations.ts';
import { closedPolicy } from './access/schema.ts';
import { type AccessService, accessService } from './access/service.ts';
import { accessStore } from './access/store.ts';
import { automationOperations } from './automations/operations.ts';
import { automationService } from './automations/service.ts';
import { automationStore } from './automations/store.ts';
import type { Config } from './config.ts';
import type { Database } from './db/database.ts';
import { settingStore } from './db/settings.ts';
import { createEgress } from './egress/proxy.ts';
import { ledgerStore } from './egress/store.ts';
import { proxyUrlOf, proxyUrls } from './egress/upstream-proxy.ts';
import { createGateway } from './gateway/server.ts';
import { modelRequestStore } from './gateway/store.ts';
import { codexHarness } from './harness/codex.ts';
import type { Harness, HarnessId } from './harness/harness.ts';
import { createServer, type Page, type Server } from './http/server.ts';
import { gitProvider } from './integrations/git.ts';
import { integrationOperations } from './integrations/operations.ts';
import { type IntegrationService, integrationService } from './integrations/service.ts';
import { integrationStore } from './integrations/store.ts';
import { plainHttpHosts } from './integrations/url.ts';
import { type Clock, iso, systemClock } from './kernel/clock.ts';
import { jsonLog, type Log } from './kernel/log.ts';
import { openDoors } from './runner/doors.ts';
import { rawTurn } from './runner/rawfile.ts';
import { reap } from './runner/reaper.ts';
import { createRunner, type Runner } from './runner/runner.ts';
import { createLive } from './runs/live.ts';
import { runOperations } from './runs/operations.ts';
import { runQueue } from './runs/queue.ts';
import { type RunService, runService } from './runs/service.ts';
import { runStore } from './runs/store.ts';
import type { Sandbox } from './sandbox/sandbox.ts';
import { provenSandbox, type SelfTest, selfTest } from './sandbox/self-test.ts';
import { secretOperations } from './secrets/operations.ts';
import { secretService } from './secrets/service.ts';
import { secretStore } from './secrets/store.ts';
import type { Vault } from './secrets/vault.ts';

/** What tests put in the place of the real thing. */
export interface Overrides {
  readonly sandbox?: Sandbox;
  readonly harnesses?: ReadonlyMap<HarnessId, Harness>;
  /** Names that the egress proxy resolves in its own way. */
  readonly resolve?: (host: string) => Promise<readonly string[]>;
  readonly clock?: Clock;
  readonly log?: Log;
  readonly pages?: readonly Page[];
}

export interface Service {
  readonly server: Server;
  readonly runner: Runner;
  readonly access: AccessService;
  readonly integrations: IntegrationService;
  readonly runs: RunService;
  /** Starts nothing before the self-test has passed. */
  readonly sandbox: Sandbox;
  readonly selfTest: SelfTest;
  /** Removes workspaces that nobody will ask for again. */
  reap(): Promise<number>;
  /** Stops working on runs without ending one, then writes what is left to write. The database stays open. */
  close(): Promise<void>;
}

/** The composition root: the only place where adapters meet the code that uses them. */
export async function compose(
  config: Config,
  { database, vault }: { database: Database; vault: Vault },
  overrides: Overrides = {},
): Promise<Service> {
  const clock = overrides.clock ?? systemClock;
  const log = overrides.log ?? jsonLog();
  const live = createLive();
  // Bound to the database, for a master key may serve several: each removes what the others' runs would leave.
  const installation = await settingStore(database).keepFirst('installation', randomBytes(6).toString('hex'));
  const runsDirectory = path.join(config.dataDir, 'runs');

  const changed = live.announceEgress;
  const access = accessService({ store: accessStore(database), clock, log, changed });
  const secrets = secretService({
    store: secretStore(database),
    vault,
    clock,
    changed,
    users: {
      using: (...asked) => automations.usingSecret(...asked),
      detach: (...asked) => automations.detachSecret(...asked),
    },
  });
  const proxyUrlFor = proxyUrls(config.upstreamProxy);
  const proxyFor = (url: string) => proxyUrlOf(proxyUrlFor, url);
  const git = gitProvider({
    dataDir: config.dataDir,
    extraCa: config.egressExtraCa,
    proxyFor,
    allowsPlainHttp: plainHttpHosts(config.egressAllowPrivate),
  });
  const integrations = integrationService({ store: integrationStore(database), vault, clock, providers: { git } });
  const automations = automationService({
    store: automationStore(database),
    references: {
      accounts: integrations.accounts,
      resources: integrations.resources,
      missingRepositories: integrations.missingRepositories,
      missingSecrets: secrets.missing,
    },
    clock,
    changed,
  });
  const modelRequests = modelRequestStore(database);
  const ledger = ledgerStore(database, log);
  const runs = runService({
    store: runStore(database),
    live,
    clock,
    log,
    automation: automations.startable,
    usageOf: modelRequests.usageOfMany,
  });

  const bare =
    overrides.sandbox ??
    (await import('./sandbox/docker.ts')).dockerSandbox({
      dockerHost: config.dockerHost,
      image: config.sandboxImage ?? (await import('./sandbox/image.ts')).imageReference(),
      installation,
      doorVolume: config.doorVolume,
      log,
    });
  const doors = openDoors(config.dataDir, config.doorVolume?.path);
  const proof = selfTest({ sandbox: bare, doors, limits: config.sandboxLimits, log });
  const sandbox = provenSandbox(bare, proof);
  const egress = await createEgress({
    directory: path.join(config.dataDir, 'ca'),
    allowPrivate: config.egressAllowPrivate,
    extraCaFile: config.egressExtraCa,
    proxyUrlFor,
    trustProxyDns: config.egressTrustProxyDns,
    limits: config.egressLimits,
    ...(overrides.resolve ? { resolve: overrides.resolve } : {}),
    log,
    clock,
  });
  const gateway = createGateway({
    baseUrls: config.modelBaseUrls,
    proxyFor,
    log,
    clock,
    cacheKey: (runId) => vault.keyedHash('model-cache', runId),
  });

  await git.sweep(new Set(await integrations.everyRepositoryId()));

  const queue = runQueue(database);
  const runner = createRunner({
    queue,
    live,
    clock,
    log,
    owner: installation,
    maxConcurrentRuns: config.maxConcurrentRuns,
    sandbox,
    limits: config.sandboxLimits,
    runsDirectory,
    doors,
    egress,
    gateway,
    ledger,
    modelRequests,
    harnesses: overrides.harnesses ?? new Map<HarnessId, Harness>([['codex', codexHarness()]]),
    async configuration(run) {
      const [automation, configuration] = await Promise.all([
        automations.find(run.workspaceId, run.automationId),
        automations.configurationOf(run.automationId, run.automationVersion),
      ]);
      if (!automation || !configuration) return undefined;
      return { ...configuration, automationName: automation.name, enabled: automation.enabled };
    },
    async repositories(workspaceId, ids) {
      const found = await integrations.repositories(workspaceId, ids);
      return found.map((repository) => ({
        id: repository.id,
        fullName: repository.fullName,
        cloneUrl: repository.cloneUrl,
        checkout: () => integrations.checkout(repository),
      }));
    },
    async gitCredentials(workspaceId, ids) {
      const credentials = await integrations.credentialsFor(await integrations.repositories(workspaceId, ids));
      return credentials.map((credential) => ({ ...credential, placeholder: credential.secret.placeholder }));
    },
    secrets: secrets.forRun,
    async policies(run) {
      const [ofWorkspace, automation] = await Promise.all([
        access.egressOf(run.workspaceId),
        automations.find(run.workspaceId, run.automationId),
      ]);
      return [ofWorkspace, automation?.configuration.egress ?? closedPolicy];
    },
    modelKey: async (_workspaceId, provider) => config.modelKeys[provider] ?? null,
  });

  const server = createServer({
    operations: [
      ...accessOperations({ service: access }),
      ...integrationOperations({ service: integrations }),
      ...secretOperations({ service: secrets }),
      ...automationOperations({ service: automations }),
      ...runOperations({
        service: runs,
        async egress(runId, page) {
          const { total, requests } = await ledger.list(runId, page);
          return {
            total,
            requests: requests.map((request) => ({ ...request, at: iso(request.at), secrets: [...request.secrets] })),
          };
        },
        rawTurn: (runId, turn) => rawTurn(runsDirectory, runId, turn),
      }),
    ],
    authenticate: access.authenticate,
    ...(overrides.pages ? { pages: overrides.pages } : {}),
    log,
  });

  return {
    server,
    runner,
    access,
    integrations,
    runs,
    sandbox,
    selfTest: proof,
    reap: () => reap({ queue, sandbox, clock, log }),
    async close() {
      await runner.stop();
      await Promise.all([gateway.close(), egress.close()]);
      await Promise.all([ledger.close(), access.settled(), sandbox.close()]);
    },
  };
}
