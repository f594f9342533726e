import type { Issue } from '../kernel/fault.ts';
import { invalid } from '../kernel/fault.ts';
import type { Configuration } from './schema.ts';

/** What other modules know of the things that a configuration names. Each answers for one workspace only. */
export interface References {
  /** The provider of each integration account that exists. */
  accounts(workspaceId: string, ids: readonly string[]): Promise<ReadonlyMap<string, string>>;
  /** External ids of an account's resources of one kind. */
  resources(workspaceId: string, accountId: string, kind: ResourceKind): Promise<ReadonlySet<string>>;
  missingRepositories(workspaceId: string, ids: readonly string[]): Promise<readonly string[]>;
  missingSecrets(workspaceId: string, ids: readonly string[]): Promise<readonly string[]>;
}
export type ResourceKind = 'channel' | 'project';

type Sent = { readonly [Field in keyof Configuration]?: Configuration[Field] | undefined };

/** One place in the configuration that names an account and, where it does, resources of that account. */
interface Mention {
  readonly path: readonly string[];
  readonly accountId: string;
  /** Undefined where an account of any provider will do. */
  readonly provider?: string;
  readonly resources?: {
    readonly kind: ResourceKind;
    readonly ids: readonly { readonly id: string; readonly path: readonly string[] }[];
  };
}

/**
 * Throws the 400 that lists every identifier that the workspace does not have: integrations first, then repositories,
 * resources and secrets. The code is that of the first kind that has one. Fields that were not sent are not looked at.
 */
export async function checkReferences(references: References, workspaceId: string, sent: Sent): Promise<void> {
  const mentioned = mentionsOf(sent);
  const [accounts, repositories, secrets] = await Promise.all([
    references.accounts(workspaceId, [...new Set(mentioned.map(({ accountId }) => accountId))]),
    missingAt('repositoryIds', sent.repositoryIds, (ids) => references.missingRepositories(workspaceId, ids)),
    missingAt('workspaceSecretIds', sent.workspaceSecretIds, (ids) => references.missingSecrets(workspaceId, ids)),
  ]);
  const isKnown = ({ accountId, provider }: Mention) => {
    const found = accounts.get(accountId);
    return found !== undefined && (provider === undefined || found === provider);
  };

  const resources: Issue[] = [];
  for (const mention of mentioned) {
    if (!mention.resources || !isKnown(mention)) continue;
    const known = await references.resources(workspaceId, mention.accountId, mention.resources.kind);
    for (const { id, path } of mention.resources.ids) {
      if (!known.has(id)) resources.push({ path, message: `The integration has no such ${mention.resources.kind}` });
    }
  }

  const groups: [code: string, issues: Issue[]][] = [
    ['integration_not_found', mentioned.filter((mention) => !isKnown(mention)).map(accountIssue)],
    ['repository_not_found', repositories.map((path) => ({ path, message: 'Repository not found' }))],
    ['resource_not_found', resources],
    ['secret_not_found', secrets.map((path) => ({ path, message: 'Secret not found' }))],
  ];
  const first = groups.find(([, issues]) => issues.length > 0);
  if (first)
    throw invalid(
      groups.flatMap(([, issues]) => issues),
      first[0],
    );
}

const accountIssue = ({ path, provider }: Mention): Issue => ({
  path,
  message: provider === undefined ? 'Integration not found' : `Integration of kind ${provider} not found`,
});

/** Paths of the identifiers in one list that do not exist. */
async function missingAt(
  field: 'repositoryIds' | 'workspaceSecretIds',
  ids: readonly string[] | undefined,
  missing: (ids: readonly string[]) => Promise<readonly string[]>,
): Promise<string[][]> {
  if (ids === undefined || ids.length === 0) return [];
  const absent = new Set(await missing(ids));
  return ids.flatMap((id, position) => (absent.has(id) ? [['configuration', field, String(position)]] : []));
}

/** Every account that the sent fields name, in the order of the fields. */
function mentionsOf(sent: Sent): Mention[] {
  const at = (field: keyof Configuration, position: number, ...rest: string[]) => [
    'configuration',
    field,
    String(position),
    ...rest,
  ];
  const triggers = (sent.triggers ?? []).flatMap((trigger, position): Mention[] => {
    if (trigger.kind === 'schedule') return [];
    const [kind, field, ids] =
      trigger.kind === 'sentry'
        ? (['project', 'projectIds', trigger.projectIds] as const)
        : (['channel', 'channelIds', trigger.channelIds] as const);
    return [
      {
        path: at('triggers', position, 'integrationAccountId'),
        accountId: trigger.integrationAccountId,
        provider: trigger.kind,
        resources: { kind, ids: ids.map((id, n) => ({ id, path: at('triggers', position, field, String(n)) })) },
      },
    ];
  });
  const contexts = (sent.contextAccountIds ?? []).map((accountId, position) => ({
    path: at('contextAccountIds', position),
    accountId,
  }));
  const notifications = (sent.notifications ?? []).map(
    (notification, position): Mention => ({
      path: at('notifications', position, 'integrationAccountId'),
      accountId: notification.integrationAccountId,
      provider: notification.kind,
      resources: {
        kind: 'channel',
        ids: [{ id: notification.channelId, path: at('notifications', position, 'channelId') }],
      },
    }),
  );
  return [...triggers, ...contexts, ...notifications];
}
