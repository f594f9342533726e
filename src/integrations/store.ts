import type { Database } from '../db/database.ts';

export interface StoredIntegration {
  readonly id: string;
  readonly workspaceId: string;
  readonly provider: string;
  readonly displayName: string;
  readonly credential: SealedToken | null;
  readonly createdAt: number;
}

/** A token as it is kept: the sealed value, and what stands for it inside sandboxes. */
export interface SealedToken {
  readonly placeholder: string;
  readonly sealed: string;
}

/** A repository row. Fits `RepositorySource`. */
export interface StoredRepository {
  readonly id: string;
  readonly workspaceId: string;
  readonly integrationId: string;
  readonly fullName: string;
  readonly cloneUrl: string;
  readonly defaultBranch: string;
  readonly private: boolean;
  readonly createdAt: number;
}

export interface Connected {
  readonly integration: StoredIntegration;
  readonly repository: StoredRepository;
}

interface IntegrationRow {
  id: string;
  workspace_id: string;
  provider: string;
  display_name: string;
  placeholder: string | null;
  sealed_token: string | null;
  created_at: number;
}

interface RepositoryRow {
  id: string;
  workspace_id: string;
  integration_id: string;
  full_name: string;
  clone_url: string;
  default_branch: string;
  private: 0 | 1;
  created_at: number;
}

const integrationColumns = 'id, workspace_id, provider, display_name, placeholder, sealed_token, created_at';
const repositoryColumns = 'id, workspace_id, integration_id, full_name, clone_url, default_branch, private, created_at';

/** Every statement that touches `integrations` and `repositories`. */
export function integrationStore(database: Database) {
  return {
    /**
     * Saves an integration that is one repository: what `connect` makes of the row that the workspace has for this
     * URL, or of none. Reading and writing are one transaction, so that connecting twice at once makes one row.
     */
    async saveConnected(
      workspaceId: string,
      provider: string,
      cloneUrl: string,
      connect: (present: Connected | undefined) => Connected,
    ): Promise<Connected> {
      return database.write(async (tx) => {
        const row = await tx.one<RepositoryRow>(
          `SELECT ${repositoryColumns} FROM repositories WHERE workspace_id = ? AND clone_url = ? AND integration_id IN
             (SELECT id FROM integrations WHERE workspace_id = ? AND provider = ?) ORDER BY id`,
          workspaceId,
          cloneUrl,
          workspaceId,
          provider,
        );
        const owner =
          row &&
          (await tx.one<IntegrationRow>(
            `SELECT ${integrationColumns} FROM integrations WHERE id = ?`,
            row.integration_id,
          ));
        const present = row && owner && { integration: integrationFrom(owner), repository: repositoryFrom(row) };
        const next = connect(present);
        const { integration, repository } = next;
        await tx.run(
          `INSERT INTO integrations (${integrationColumns}) VALUES (?, ?, ?, ?, ?, ?, ?)
           ON CONFLICT (id) DO UPDATE SET display_name = excluded.display_name, placeholder = excluded.placeholder,
             sealed_token = excluded.sealed_token`,
          integration.id,
          workspaceId,
          integration.provider,
          integration.displayName,
          integration.credential?.placeholder ?? null,
          integration.credential?.sealed ?? null,
          integration.createdAt,
        );
        await tx.run(
          `INSERT INTO repositories (${repositoryColumns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
           ON CONFLICT (id) DO UPDATE SET full_name = excluded.full_name, default_branch = excluded.default_branch,
             private = excluded.private`,
          repository.id,
          workspaceId,
          integration.id,
          repository.fullName,
          repository.cloneUrl,
          repository.defaultBranch,
          Number(repository.private),
          repository.createdAt,
        );
        return next;
      });
    },

    /** Oldest first. */
    async integrations(workspaceId: string): Promise<StoredIntegration[]> {
      const rows = await database.all<IntegrationRow>(
        `SELECT ${integrationColumns} FROM integrations WHERE workspace_id = ? ORDER BY created_at, id`,
        workspaceId,
      );
      return rows.map(integrationFrom);
    },

    async findIntegration(workspaceId: string, id: string): Promise<StoredIntegration | undefined> {
      const row = await database.one<IntegrationRow>(
        `SELECT ${integrationColumns} FROM integrations WHERE workspace_id = ? AND id = ?`,
        workspaceId,
        id,
      );
      return row && integrationFrom(row);
    },

    /** Oldest first. */
    async repositories(workspaceId: string): Promise<StoredRepository[]> {
      const rows = await database.all<RepositoryRow>(
        `SELECT ${repositoryColumns} FROM repositories WHERE workspace_id = ? ORDER BY created_at, id`,
        workspaceId,
      );
      return rows.map(repositoryFrom);
    },

    workspaces: (): Promise<{ id: string; slug: string }[]> =>
      database.all<{ id: string; slug: string }>('SELECT id, slug FROM workspaces ORDER BY created_at, id'),

    /** Ids of the repositories of all workspaces: whose mirrors are to be kept. */
    async everyRepositoryId(): Promise<string[]> {
      return (await database.all<{ id: string }>('SELECT id FROM repositories')).map(({ id }) => id);
    },

    /** Removes an integration with its repositories; false when the workspace has no such one. */
    async remove(workspaceId: string, id: string): Promise<boolean> {
      const removed = await database.write((tx) =>
        tx.run('DELETE FROM integrations WHERE workspace_id = ? AND id = ?', workspaceId, id),
      );
      return removed > 0;
    },
  };
}
export type IntegrationStore = ReturnType<typeof integrationStore>;

const integrationFrom = (row: IntegrationRow): StoredIntegration => ({
  id: row.id,
  workspaceId: row.workspace_id,
  provider: row.provider,
  displayName: row.display_name,
  credential:
    row.placeholder === null || row.sealed_token === null
      ? null
      : { placeholder: row.placeholder, sealed: row.sealed_token },
  createdAt: row.created_at,
});

const repositoryFrom = (row: RepositoryRow): StoredRepository => ({
  id: row.id,
  workspaceId: row.workspace_id,
  integrationId: row.integration_id,
  fullName: row.full_name,
  cloneUrl: row.clone_url,
  defaultBranch: row.default_branch,
  private: row.private === 1,
  createdAt: row.created_at,
});
