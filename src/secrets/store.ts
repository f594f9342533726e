import type { Database, Transaction } from '../db/database.ts';
import type { Secret } from './schema.ts';

type Surface = Secret['surfaces'][number];

/** A secret as it is stored, but for the sealed value. */
export interface StoredSecret {
  readonly id: string;
  readonly workspaceId: string;
  readonly name: string;
  readonly placeholder: string;
  readonly allowedHosts: readonly string[];
  readonly surfaces: readonly Surface[];
  readonly createdAt: number;
}

interface Row {
  id: string;
  workspace_id: string;
  name: string;
  placeholder: string;
  allowed_hosts: string;
  surfaces: string;
  created_at: number;
}

/** What a change puts in the place of what is there; each is left as it is when not given. */
export interface SecretChange {
  readonly sealedValue?: string;
  readonly allowedHosts?: readonly string[];
  readonly surfaces?: readonly Surface[];
}

const columns = 'id, workspace_id, name, placeholder, allowed_hosts, surfaces, created_at';

export function secretStore(database: Database) {
  return {
    /** Adds a secret; false when its name is taken in the workspace. */
    async insert(secret: StoredSecret, sealedValue: string): Promise<boolean> {
      const added = await database.write((tx) =>
        tx.run(
          `INSERT INTO secrets (${columns}, sealed_value) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
           ON CONFLICT (workspace_id, name) DO NOTHING`,
          secret.id,
          secret.workspaceId,
          secret.name,
          secret.placeholder,
          JSON.stringify(secret.allowedHosts),
          JSON.stringify(secret.surfaces),
          secret.createdAt,
          sealedValue,
        ),
      );
      return added === 1;
    },

    async find(workspaceId: string, id: string): Promise<StoredSecret | undefined> {
      const row = await database.one<Row>(
        `SELECT ${columns} FROM secrets WHERE id = ? AND workspace_id = ?`,
        id,
        workspaceId,
      );
      return row && fromRow(row);
    },

    /** The secret as the change leaves it; undefined when the workspace has none of that id. */
    async update(workspaceId: string, id: string, change: SecretChange): Promise<StoredSecret | undefined> {
      const { sealedValue, allowedHosts, surfaces } = change;
      const row = await database.write((tx) =>
        tx.one<Row>(
          `UPDATE secrets SET sealed_value = COALESCE(?, sealed_value), allowed_hosts = COALESCE(?, allowed_hosts),
             surfaces = COALESCE(?, surfaces)
           WHERE id = ? AND workspace_id = ? RETURNING ${columns}`,
          sealedValue ?? null,
          allowedHosts === undefined ? null : JSON.stringify(allowedHosts),
          surfaces === undefined ? null : JSON.stringify(surfaces),
          id,
          workspaceId,
        ),
      );
      return row && fromRow(row);
    },

    /**
     * Removes a secret after `first`, in one transaction: what that throws keeps it. False when the workspace has
     * none of that id, and then `first` is not called.
     */
    async remove(workspaceId: string, id: string, first: (tx: Transaction) => Promise<void>): Promise<boolean> {
      return database.write(async (tx) => {
        const there = await tx.one('SELECT id FROM secrets WHERE id = ? AND workspace_id = ?', id, workspaceId);
        if (there === undefined) return false;
        await first(tx);
        await tx.run('DELETE FROM secrets WHERE id = ? AND workspace_id = ?', id, workspaceId);
        return true;
      });
    },

    /** Newest first; ids sort by time, so they decide within one millisecond. */
    async list(workspaceId: string): Promise<StoredSecret[]> {
      const rows = await database.all<Row>(
        `SELECT ${columns} FROM secrets WHERE workspace_id = ? ORDER BY created_at DESC, id DESC`,
        workspaceId,
      );
      return rows.map(fromRow);
    },

    /** Those of the secrets that the workspace has, in no order, with their sealed values. */
    async sealed(
      workspaceId: string,
      ids: readonly string[],
    ): Promise<{ secret: StoredSecret; sealedValue: string }[]> {
      if (ids.length === 0) return [];
      const rows = await database.all<Row & { sealed_value: string }>(
        `SELECT ${columns}, sealed_value FROM secrets WHERE workspace_id = ? AND id IN (${marks(ids)})`,
        workspaceId,
        ...ids,
      );
      return rows.map((row) => ({ secret: fromRow(row), sealedValue: row.sealed_value }));
    },

    /** The names of those of the secrets that the workspace has, by id. */
    async names(workspaceId: string, ids: readonly string[]): Promise<Map<string, string>> {
      if (ids.length === 0) return new Map();
      const rows = await database.all<{ id: string; name: string }>(
        `SELECT id, name FROM secrets WHERE workspace_id = ? AND id IN (${marks(ids)})`,
        workspaceId,
        ...ids,
      );
      return new Map(rows.map((row) => [row.id, row.name]));
    },
  };
}
export type SecretStore = ReturnType<typeof secretStore>;

const marks = (ids: readonly string[]): string => ids.map(() => '?').join(', ');

const fromRow = (row: Row): StoredSecret => ({
  id: row.id,
  workspaceId: row.workspace_id,
  name: row.name,
  placeholder: row.placeholder,
  allowedHosts: JSON.parse(row.allowed_hosts) as string[],
  surfaces: JSON.parse(row.surfaces) as Surface[],
  createdAt: row.created_at,
});
