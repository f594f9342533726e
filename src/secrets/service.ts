import type { EgressSecret } from '../egress/egress.ts';
import { type Clock, iso } from '../kernel/clock.ts';
import { conflict } from '../kernel/fault.ts';
import { newId } from '../kernel/id.ts';
import { makePlaceholder } from './placeholder.ts';
import type { NewSecret, Secret } from './schema.ts';
import type { SecretStore, StoredSecret } from './store.ts';
import type { Vault } from './vault.ts';

export interface SecretNeeds {
  readonly store: SecretStore;
  readonly vault: Vault;
  readonly clock: Clock;
}

/** Workspace secrets. Plain values leave it through `forRun` only, towards the egress proxy. */
export function secretService({ store, vault, clock }: SecretNeeds) {
  return {
    /** Newest first. */
    async list(workspaceId: string): Promise<Secret[]> {
      return (await store.list(workspaceId)).map(shown);
    },

    /** Seals and keeps a new secret. 409 `secret_name_taken` where the workspace has one of that name. */
    async create(workspaceId: string, { name, value, allowedHosts }: NewSecret): Promise<Secret> {
      const secret: StoredSecret = {
        id: newId(),
        workspaceId,
        name,
        placeholder: makePlaceholder(value, vault.marker),
        allowedHosts,
        createdAt: clock(),
      };
      const added = await store.insert(secret, vault.seal(value, contextOf(secret.id)));
      if (!added) throw conflict('secret_name_taken', `A secret named ${name} exists already`);
      return shown(secret);
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
        const { name, placeholder, allowedHosts } = row.secret;
        return [{ name, placeholder, allowedHosts, value: vault.open(row.sealedValue, contextOf(id)) }];
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

const shown = ({ id, name, allowedHosts, createdAt }: StoredSecret): Secret => ({
  id,
  name,
  allowedHosts: [...allowedHosts],
  createdAt: iso(createdAt),
});
