import { type EgressSecret, usualSurfaces } from '../egress/egress.ts';
import type { Clock } from '../kernel/clock.ts';
import { absent, invalid } from '../kernel/fault.ts';
import { newId } from '../kernel/id.ts';
import { makePlaceholder } from '../secrets/placeholder.ts';
import type { Vault } from '../secrets/vault.ts';
import { type Checkout, RepositoryUnavailable, type SourceProvider } from './provider.ts';
import { GitConnection, type Integration, type IntegrationList, type Repository } from './schema.ts';
import type { Connected, IntegrationStore, StoredIntegration, StoredRepository } from './store.ts';

export interface IntegrationNeeds {
  readonly store: IntegrationStore;
  readonly vault: Pick<Vault, 'seal' | 'open' | 'marker'>;
  /** The adapters by what the integrations that they serve are called. */
  readonly providers: { readonly git: SourceProvider };
  readonly clock: Clock;
}

/** How git inside a sandbox logs in to one repository: with the placeholder, which egress replaces. */
export interface GitCredential {
  readonly cloneUrl: string;
  readonly username: string;
  readonly secret: EgressSecret;
}

/** What Slipway is connected to. Tokens leave it through `credentialsFor` only, towards the egress proxy. */
export function integrationService({ store, vault, providers: { git }, clock }: IntegrationNeeds) {
  const tokenOf = (integration: StoredIntegration): string | null =>
    integration.credential && vault.open(integration.credential.sealed, contextOf(integration.id));

  async function integrationOf(repository: StoredRepository): Promise<StoredIntegration | undefined> {
    return store.findIntegration(repository.workspaceId, repository.integrationId);
  }

  /** The token that the workspace has given for this URL before, so that connecting again need not repeat it. */
  async function knownToken(workspaceId: string, cloneUrl: string): Promise<string | null> {
    const known = (await store.repositories(workspaceId)).find((repository) => repository.cloneUrl === cloneUrl);
    const integration = known && (await integrationOf(known));
    return integration ? tokenOf(integration) : null;
  }

  async function repositories(workspaceId: string, ids: readonly string[]): Promise<StoredRepository[]> {
    const byId = new Map((await store.repositories(workspaceId)).map((repository) => [repository.id, repository]));
    return ids.flatMap((id) => byId.get(id) ?? []);
  }

  return {
    repositories,

    async list(workspaceId: string): Promise<IntegrationList> {
      const [integrations, found] = await Promise.all([
        store.integrations(workspaceId),
        store.repositories(workspaceId),
      ]);
      return {
        integrations: integrations.map(shownIntegration),
        repositories: found.map(shownRepository),
        resources: [],
      };
    },

    /**
     * Connects one git repository after reading it with the credential. A URL that is connected already keeps its ids;
     * its name and token change where they are given. Throws a Fault that says which of them is wrong.
     */
    async connectGit(
      workspaceId: string,
      wanted: GitConnection,
    ): Promise<{ integration: Integration; repositories: Repository[] }> {
      const { url, name, token } = read(wanted);
      const cloneUrl = git.cloneUrl(url);
      if (token !== undefined && cloneUrl.startsWith('file:')) {
        throw invalid([{ path: ['token'], message: 'A repository on this machine takes no token' }]);
      }
      const found = await git.discover(cloneUrl, token ?? (await knownToken(workspaceId, cloneUrl)));
      /** A new token keeps the placeholder, as a rotated secret does: open runs go on with it. */
      const seal = (integrationId: string, placeholder = makePlaceholder(token ?? '', vault.marker)) =>
        token === undefined ? undefined : { placeholder, sealed: vault.seal(token, contextOf(integrationId)) };
      const { integration, repository } = await store.saveConnected(workspaceId, git.id, cloneUrl, (present) => {
        const integrationId = present?.integration.id ?? newId();
        const createdAt = present?.integration.createdAt ?? clock();
        return {
          integration: {
            id: integrationId,
            workspaceId,
            provider: git.id,
            displayName: name ?? present?.integration.displayName ?? found.fullName,
            credential:
              seal(integrationId, present?.integration.credential?.placeholder) ??
              present?.integration.credential ??
              null,
            createdAt,
          },
          repository: {
            ...found,
            cloneUrl,
            id: present?.repository.id ?? newId(),
            workspaceId,
            integrationId,
            createdAt,
          },
        } satisfies Connected;
      });
      return { integration: shownIntegration(integration), repositories: [shownRepository(repository)] };
    },

    /** Removes an integration with its repositories. Automations that name them keep the names and cannot run. */
    async remove(workspaceId: string, integrationId: string): Promise<void> {
      if (!(await store.remove(workspaceId, integrationId))) throw absent('not_found', 'Integration not found');
    },

    /** Those of the ids that name no repository of the workspace, in their order. */
    async missingRepositories(workspaceId: string, ids: readonly string[]): Promise<string[]> {
      const found = new Set((await repositories(workspaceId, ids)).map(({ id }) => id));
      return ids.filter((id) => !found.has(id));
    },

    /** The provider of each of the accounts that the workspace has. */
    async accounts(workspaceId: string, ids: readonly string[]): Promise<Map<string, string>> {
      if (ids.length === 0) return new Map();
      const wanted = new Set(ids);
      const found = (await store.integrations(workspaceId)).filter(({ id }) => wanted.has(id));
      return new Map(found.map(({ id, provider }) => [id, provider]));
    },

    /** External ids of an account's resources of one kind. A git account has none. */
    async resources(_workspaceId: string, _accountId: string, _kind: string): Promise<Set<string>> {
      return new Set();
    },

    /** Opens the newest state of the repository's default branch. Throws `RepositoryUnavailable`. */
    async checkout(repository: StoredRepository): Promise<Checkout> {
      const integration = await integrationOf(repository);
      if (!integration) {
        throw new RepositoryUnavailable(`${repository.fullName} is not connected any more: connect it again.`);
      }
      return git.checkout(repository, tokenOf(integration));
    },

    /** How to log in to those of the repositories that have a token. Only their own host is given it. */
    async credentialsFor(wanted: readonly StoredRepository[]): Promise<GitCredential[]> {
      const credentials = await Promise.all(
        wanted.map(async (repository): Promise<GitCredential[]> => {
          const integration = await integrationOf(repository);
          const value = integration ? tokenOf(integration) : null;
          if (!integration?.credential || value === null) return [];
          const host = new URL(repository.cloneUrl).hostname.replace(/^\[|\]$/g, '');
          const secret = {
            name: `git:${repository.fullName}`,
            placeholder: integration.credential.placeholder,
            value,
            allowedHosts: [host],
            surfaces: usualSurfaces,
          };
          return [{ cloneUrl: repository.cloneUrl, username: 'x-access-token', secret }];
        }),
      );
      return credentials.flat();
    },

    /** The workspaces that there are, oldest first: the command line asks which one is meant. */
    workspaces: (): Promise<{ id: string; slug: string }[]> => store.workspaces(),

    /** Ids of the repositories of all workspaces: whose mirrors are to be kept. */
    everyRepositoryId: (): Promise<string[]> => store.everyRepositoryId(),
  };
}
export type IntegrationService = ReturnType<typeof integrationService>;

/** Binds a sealed token to its row and column. */
const contextOf = (integrationId: string): string => `integrations/${integrationId}/token`;

function read(wanted: GitConnection) {
  const result = GitConnection.safeParse(wanted);
  if (result.success) return result.data;
  throw invalid(result.error.issues.map(({ path, message }) => ({ path: path.map(String), message })));
}

const shownIntegration = ({ id, provider, displayName }: StoredIntegration): Integration => ({
  id,
  provider,
  displayName,
});

const shownRepository = (repository: StoredRepository): Repository => ({
  id: repository.id,
  integrationAccountId: repository.integrationId,
  fullName: repository.fullName,
  defaultBranch: repository.defaultBranch,
  private: repository.private,
});
