import type { Transaction } from '../db/database.ts';
import type { EgressSecret } from '../egress/egress.ts';
import { type Clock, iso } from '../kernel/clock.ts';
import { absent, conflict } from '../kernel/fault.ts';
import { newId } from '../kernel/id.ts';
import { makePlaceholder } from './placeholder.ts';
import type { NewSecret, Secret, SecretPatch } from './schema.ts';
import type { SecretStore, StoredSecret } from './store.ts';
import type { Vault } from './vault.ts';

export interface SecretNeeds {
  readonly store: SecretStore;
  readonly vault: Vault;
  readonly clock: Clock;
  /** Who uses secrets. A deployment without automations has nobody to ask. */
  readonly users?: SecretUsers;
  /**
   * Told of every committed change that open runs have to heed; what answers a caller waits for it. The command line
   * has no runs to tell: those of the server look by themselves.
   */
  changed?(workspaceId: string): Promise<void>;
}

/** The automations that secrets are chosen in. */
export interface SecretUsers {
  /** Names of the automations of the workspace whose present version has the secret. */
  using(tx: Transaction, workspaceId: string, secretId: string): Promise<readonly string[]>;
  /** Takes the secret out of each of them, as a new version that `userId` made. */
  detach(tx: Transaction, workspaceId: string, secretId: string, userId: string, at: number): Promise<void>;
}

/** Workspace secrets. Plain values leave it through `forRun` only, towards the egress proxy. */
export function secretService({ store, vault, clock, users, changed }: SecretNeeds) {
  return {
    /** Newest first. */
    async list(workspaceId: string): Promise<Secret[]> {
      return (await store.list(workspaceId)).map(shown);
    },

    /** Seals and keeps a new secret. 409 `secret_name_taken` where the workspace has one of that name. */
    async create(workspaceId: string, { name, value, allowedHosts, surfaces }: NewSecret): Promise<Secret> {
      const secret: StoredSecret = {
        id: newId(),
        workspaceId,
        name,
        placeholder: makePlaceholder(value, vault.marker),
        allowedHosts,
        surfaces,
        createdAt: clock(),
      };
      const added = await store.insert(secret, vault.seal(value, contextOf(secret.id)));
      if (!added) throw conflict('secret_name_taken', `A secret named ${name} exists already`);
      return shown(secret);
    },

    /**
     * Puts what is sent in the place of what is there; a value is sealed anew. Open runs go by it when this resolves.
     * 404 `secret_not_found`.
     */
    async update(workspaceId: string, id: string, { value, allowedHosts, surfaces }: SecretPatch): Promise<Secret> {
      if (value === undefined && allowedHosts === undefined && surfaces === undefined) {
        const present = await store.find(workspaceId, id);
        if (!present) throw notFound();
        return shown(present);
      }
      const secret = await store.update(workspaceId, id, {
        ...(value === undefined ? {} : { sealedValue: vault.seal(value, contextOf(id)) }),
        ...(allowedHosts === undefined ? {} : { allowedHosts }),
        ...(surfaces === undefined ? {} : { surfaces }),
      });
      if (!secret) throw notFound();
      await changed?.(workspaceId);
      return shown(secret);
    },

    /**
     * Deletes a secret; no open run can use it when this resolves. 404 `secret_not_found`; 409 `secret_in_use` with
     * the names of the automations that have it, unless `detach` takes it out of them.
     */
    async remove(workspaceId: string, userId: string, id: string, { detach }: { detach: boolean }): Promise<void> {
      const removed = await store.remove(workspaceId, id, async (tx) => {
        const names = (await users?.using(tx, workspaceId, id)) ?? [];
        if (names.length === 0) return;
        if (!detach) throw conflict('secret_in_use', inUse(names));
        await users?.detach(tx, workspaceId, id, userId, clock());
      });
      if (!removed) throw notFound();
      await changed?.(workspaceId);
    },

    /**
     * The secrets with their plain values, in the order of the ids, for the life of one run. An id that the workspace
     * does not have is left out: `missing` tells.
     */
    async forRun(workspaceId: string, secretIds: readonly string[]): Promise<EgressSecret[]> {
      const rows = await store.sealed(workspaceId, secretIds);
      const byId = new Map(rows.map((row) => [row.secret.id, row]));
      return secretIds.flatMap((id) => {
        const row = byId.get(id);
        if (!row) return [];
        const { name, placeholder, allowedHosts, surfaces } = row.secret;
        const value = vault.open(row.sealedValue, contextOf(id));
        return [{ name, placeholder, allowedHosts, surfaces, value }];
      });
    },

    /** Those of the ids that name no secret of the workspace, in their order. */
    async missing(workspaceId: string, secretIds: readonly string[]): Promise<string[]> {
      const names = await store.names(workspaceId, secretIds);
      return secretIds.filter((id) => !names.has(id));
    },

    /** The variable names of the secrets, in the order of the ids; an id that the workspace does not have is left out. */
    async namesOf(workspaceId: string, secretIds: readonly string[]): Promise<string[]> {
      const names = await store.names(workspaceId, secretIds);
      return secretIds.flatMap((id) => names.get(id) ?? []);
    },
  };
}
export type SecretService = ReturnType<typeof secretService>;

/** Binds a sealed value to its row and column. */
const contextOf = (id: string): string => `secrets/${id}/value`;

const notFound = () => absent('secret_not_found', 'Secret not found');

const mostNamed = 10;

function inUse(names: readonly string[]): string {
  const named = names.slice(0, mostNamed).map((name) => `"${name}"`);
  const more = names.length > mostNamed ? ` and ${names.length - mostNamed} more` : '';
  return (
    `The secret is used by ${names.length === 1 ? 'the automation' : 'the automations'} ${named.join(', ')}${more}. ` +
    'Take it out of them first, or delete it with ?detach=true.'
  );
}

const shown = ({ id, name, allowedHosts, surfaces, createdAt }: StoredSecret): Secret => ({
  id,
  name,
  allowedHosts: [...allowedHosts],
  surfaces: [...surfaces],
  createdAt: iso(createdAt),
});
