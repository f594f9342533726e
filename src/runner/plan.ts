import type { EgressSecret, HostPolicy } from '../egress/egress.ts';
import type { ModelProvider } from '../gateway/gateway.ts';
import type { Harness, HarnessId } from '../harness/harness.ts';
import type { StoredRun } from '../runs/row.ts';
import type { GitCredential, RunRepository } from './checkout.ts';
import { TurnFailure } from './failure.ts';

/** What a run's pinned version of its automation asks for. */
export interface RunConfiguration {
  readonly automationName: string;
  readonly enabled: boolean;
  readonly prompt: string;
  readonly repositoryIds: readonly string[];
  readonly workspaceSecretIds: readonly string[];
  readonly harness: HarnessId;
  readonly modelProvider: ModelProvider;
  readonly model: string;
  readonly maxModelRequests: number;
  readonly maxOutputTokensPerRequest: number;
  readonly maxRuntimeSeconds: number;
}

/** What the plan is made from; each is another module's service. */
export interface PlanNeeds {
  readonly harnesses: ReadonlyMap<HarnessId, Harness>;
  configuration(run: StoredRun): Promise<RunConfiguration | undefined>;
  /** The repositories that still exist, in the order of the ids. */
  repositories(workspaceId: string, ids: readonly string[]): Promise<RunRepository[]>;
  /** Credentials of repositories: what git inside is given, and what the proxy puts in its place. */
  gitCredentials(workspaceId: string, ids: readonly string[]): Promise<(GitCredential & { secret: EgressSecret })[]>;
  secrets(workspaceId: string, ids: readonly string[]): Promise<EgressSecret[]>;
  /**
   * The lists of hosts that hold for the run now, each of which must allow one: the workspace's, and that of the
   * automation's present version, not of the run's own.
   */
  policies(run: StoredRun): Promise<readonly HostPolicy[]>;
  /** The key that requests to the provider are made with, null when there is none. */
  modelKey(workspaceId: string, provider: ModelProvider): Promise<string | null>;
}

/** Everything that a turn works with, read once when it begins. */
export interface TurnPlan {
  readonly configuration: RunConfiguration;
  readonly harness: Harness;
  readonly repositories: readonly RunRepository[];
  readonly gitCredentials: readonly GitCredential[];
  readonly secrets: readonly EgressSecret[];
  /** The workspace's secrets and the credentials of git: what the proxy may put in. */
  readonly substitutions: readonly EgressSecret[];
  /** Which hosts may be reached. */
  readonly policies: readonly HostPolicy[];
  readonly modelKey: string;
}

/** Providers that the gateway has a way to; the others follow with its translation. */
const reachable: readonly ModelProvider[] = ['openai'];

/**
 * Gathers what the turn needs. Throws `TurnFailure` where something is gone or missing. An automation that is turned
 * off starts nothing, but does not end what `goesOn` already.
 */
export async function planTurn(
  needs: PlanNeeds,
  run: StoredRun,
  { goesOn = false }: { goesOn?: boolean } = {},
): Promise<TurnPlan> {
  const configuration = await needs.configuration(run);
  if (!configuration) throw gone('The automation, or the version of it that this run uses, is gone.');
  if (!configuration.enabled && !goesOn)
    throw gone('The automation was turned off. Turn it on and start the run again.');
  const harness = needs.harnesses.get(configuration.harness);
  if (!harness) throw gone(`The harness ${configuration.harness} is not available in this version. Choose codex.`);
  if (!reachable.includes(configuration.modelProvider)) {
    throw gone(`The provider ${configuration.modelProvider} is not available in this version. Choose openai.`);
  }
  const [repositories, credentials, secrets, policies, modelKey] = await Promise.all([
    needs.repositories(run.workspaceId, configuration.repositoryIds),
    needs.gitCredentials(run.workspaceId, configuration.repositoryIds),
    needs.secrets(run.workspaceId, configuration.workspaceSecretIds),
    needs.policies(run),
    needs.modelKey(run.workspaceId, configuration.modelProvider),
  ]);
  if (repositories.length < configuration.repositoryIds.length) {
    throw gone('A repository of the automation is not connected any more. Choose its repositories again.');
  }
  // A run under way was told that its secret is no more: it goes on without, also over a restart of the server.
  if (secrets.length < configuration.workspaceSecretIds.length && !goesOn) {
    throw gone('A secret of the automation is gone. Choose its secrets again and start a new run.');
  }
  if (modelKey === null) {
    throw new TurnFailure(
      'model_authentication_failed',
      `There is no key for ${configuration.modelProvider}. Set ${configuration.modelProvider.toUpperCase()}_API_KEY for the server.`,
    );
  }
  return {
    configuration,
    harness,
    repositories,
    gitCredentials: credentials.map(({ cloneUrl, username, placeholder }) => ({ cloneUrl, username, placeholder })),
    secrets,
    substitutions: [...secrets, ...credentials.map(({ secret }) => secret)],
    policies: withRepositories(policies, repositories),
    modelKey,
  };
}

/**
 * The lists with the hosts of the run's own repositories among those that a closed list allows: whoever chose the
 * repositories wants them fetched from and pushed to. An open list that names one of them keeps it out.
 */
export function withRepositories(
  policies: readonly HostPolicy[],
  repositories: readonly Pick<RunRepository, 'cloneUrl'>[],
): HostPolicy[] {
  const own = repositories.flatMap(({ cloneUrl }) => {
    const url = URL.parse(cloneUrl);
    return url?.protocol === 'https:' || url?.protocol === 'http:' ? [url.hostname.replace(/^\[|\]$/g, '')] : [];
  });
  return policies.map((policy) =>
    policy.default === 'deny' ? { default: 'deny', hosts: [...new Set([...policy.hosts, ...own])] } : policy,
  );
}

const gone = (message: string) => new TurnFailure('configuration_unavailable', message);
