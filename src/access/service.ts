import { type Clock, iso } from '../kernel/clock.ts';
import { conflict, Fault } from '../kernel/fault.ts';
import { hashToken, kindOfToken, mintToken, newId, shownPrefix, type TokenKind, tokenPrefixes } from '../kernel/id.ts';
import type { Log } from '../kernel/log.ts';
import { checkFounding, type Founding, slugOf } from './founding.ts';
import { type EgressPolicy, openPolicy, type Workspace, type WorkspacePatch } from './schema.ts';
import type { AccessStore, Foundation, KeyHolder, NewToken } from './store.ts';

/** `last_used_at` of a key is written at most this often. */
const touchEveryMs = 60_000;

/** What this server offers to every workspace. */
const capabilities: readonly string[] = ['automations'];

export interface AccessNeeds {
  readonly store: AccessStore;
  readonly clock: Clock;
  readonly log: Log;
  /** Told of a committed change that open runs have to heed; what answers the caller waits for it. */
  changed?(workspaceId: string): Promise<void>;
}

/** Whom a workspace key acts as, and where: the `Principal` of the HTTP edge. */
export type Caller = Omit<KeyHolder, 'lastUsedAt'>;

/** What the first run created. The password and the three keys are shown once: only hashes of them are stored. */
export interface Founded {
  readonly organisationId: string;
  readonly workspaceId: string;
  readonly projectId: string;
  readonly ownerEmail: string;
  readonly ownerPassword: string;
  readonly workspaceKey: string;
  readonly managementKey: string;
  readonly ingestKey: string;
}

export function accessService({ store, clock, log, changed }: AccessNeeds) {
  const touchedAt = new Map<string, number>();
  const touching = new Set<Promise<void>>();

  /** Writes `last_used_at` behind the caller's back: no request waits for it, none fails with it. */
  function touch(tokenId: string, lastUsedAt: number | null): void {
    const now = clock();
    const last = touchedAt.get(tokenId) ?? lastUsedAt ?? Number.NEGATIVE_INFINITY;
    if (now - last < touchEveryMs) return;
    touchedAt.set(tokenId, now);
    const writing = store
      .touch(tokenId, now)
      .catch((error: unknown) => log.error('The last use of a key could not be written', error, { tokenId }))
      .finally(() => touching.delete(writing));
    touching.add(writing);
  }

  const egressOf = async (workspaceId: string): Promise<EgressPolicy> =>
    (await store.egressOf(workspaceId)) ?? openPolicy;

  /** The caller's workspace, as `GET /workspace` shows it. */
  async function workspace({ tokenId, workspaceId, memberId }: Caller): Promise<Workspace> {
    const [found, egress] = await Promise.all([store.workspaceOf(workspaceId, memberId), egressOf(workspaceId)]);
    // The member can have left between authentication and now.
    if (!found) throw notAKey();
    const { id, name, slug, createdAt, userId, userName, email, role } = found;
    return {
      id,
      name,
      slug,
      createdAt: iso(createdAt),
      apiKeyId: tokenId,
      capabilities: [...capabilities],
      egress,
      member: { userId, name: userName, email, role },
    };
  }

  return {
    /**
     * The member whom a workspace key acts as. Throws the 401 fault for a key that is malformed, unknown, revoked or
     * whose member has left; another kind of token is told which one is wanted.
     */
    async authenticate(bearer: string): Promise<Caller> {
      if (kindOfToken(bearer) !== 'workspace') throw isOfAnotherKind(bearer) ? wrongKind() : notAKey();
      const holder = await store.keyHolder(hashToken(bearer));
      if (!holder) throw notAKey();
      touch(holder.tokenId, holder.lastUsedAt);
      const { tokenId, workspaceId, memberId, userId, role } = holder;
      return { tokenId, workspaceId, memberId, userId, role };
    },

    workspace,

    /**
     * Changes the caller's workspace; open runs go by it when this resolves. 403 `forbidden` for a member who is
     * neither owner nor admin.
     */
    async updateWorkspace(caller: Caller, { egress }: WorkspacePatch): Promise<Workspace> {
      if (caller.role === 'member') {
        throw new Fault('forbidden', 'forbidden', 'Only an owner or an admin of the workspace may change it');
      }
      if (egress !== undefined) {
        await store.setEgress(caller.workspaceId, egress);
        await changed?.(caller.workspaceId);
      }
      return workspace(caller);
    },

    /** Which hosts the runs of the workspace may reach. */
    egressOf,

    /** True once there is an organisation. */
    isSetUp: (): Promise<boolean> => store.isSetUp(),

    /**
     * The first run: organisation, workspace, project, owner and one key of each kind. Throws the 400 fault with the
     * fields that are wrong, and 409 `already_set_up` for every call but the first.
     */
    async initialise(founding: Founding): Promise<Founded> {
      const answers = checkFounding(founding);
      // Looked up before the password is hashed, which is slow on purpose; `found` decides.
      if (await store.isSetUp()) throw alreadySetUp();
      const passwordHash = await Bun.password.hash(answers.ownerPassword, 'argon2id');
      const ids = { organisation: newId(), workspace: newId(), project: newId(), user: newId(), member: newId() };
      const workspaceKey = newToken('workspace', { workspaceId: ids.workspace, memberId: ids.member });
      const managementKey = newToken('management', {});
      const ingestKey = newToken('ingest', { projectId: ids.project });
      const foundation: Foundation = {
        at: clock(),
        organisation: { id: ids.organisation, name: answers.organisation },
        workspace: {
          id: ids.workspace,
          name: answers.workspace,
          slug: slugOf(answers.workspace, 'workspace'),
        },
        project: { id: ids.project, name: answers.project, slug: slugOf(answers.project, 'project') },
        owner: {
          userId: ids.user,
          memberId: ids.member,
          email: answers.ownerEmail,
          name: answers.ownerName,
          passwordHash,
        },
        tokens: [workspaceKey.row, managementKey.row, ingestKey.row],
      };
      if (!(await store.found(foundation))) throw alreadySetUp();
      return {
        organisationId: ids.organisation,
        workspaceId: ids.workspace,
        projectId: ids.project,
        ownerEmail: answers.ownerEmail,
        ownerPassword: answers.ownerPassword,
        workspaceKey: workspaceKey.plaintext,
        managementKey: managementKey.plaintext,
        ingestKey: ingestKey.plaintext,
      };
    },

    /** Resolves when every `last_used_at` under way is written; to be awaited before the database is closed. */
    async settled(): Promise<void> {
      await Promise.all(touching);
    },
  };
}
export type AccessService = ReturnType<typeof accessService>;

function newToken(
  kind: TokenKind,
  scope: { workspaceId?: string; projectId?: string; memberId?: string },
): { plaintext: string; row: NewToken } {
  const plaintext = mintToken(kind);
  const row: NewToken = {
    id: newId(),
    kind,
    hash: hashToken(plaintext),
    shownPrefix: shownPrefix(kind, plaintext),
    name: 'Made at set-up',
    workspaceId: scope.workspaceId ?? null,
    projectId: scope.projectId ?? null,
    memberId: scope.memberId ?? null,
  };
  return { plaintext, row };
}

/** Judged by the prefix alone: who mixed up two keys should be told so even where one was cut off in pasting. */
const isOfAnotherKind = (bearer: string): boolean =>
  Object.entries(tokenPrefixes).some(([kind, prefix]) => kind !== 'workspace' && bearer.startsWith(prefix));

const notAKey = () =>
  new Fault('unauthenticated', 'unauthorized', 'The API key is missing, malformed, unknown or revoked');

const wrongKind = () =>
  new Fault(
    'unauthenticated',
    'unauthorized',
    'wrong credential type: this endpoint wants a workspace API key (slk_...)',
  );

const alreadySetUp = () => conflict('already_set_up', 'Slipway is already set up in this data directory');
