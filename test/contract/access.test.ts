import { describe, expect, test } from 'bun:test';
import { accessService } from '../../src/access/service.ts';
import { accessStore } from '../../src/access/store.ts';
import { mintToken } from '../../src/kernel/id.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { testDatabase } from '../support/database.ts';

/** A database, the service on it, a clock that the test turns, and how often `last_used_at` was written. */
async function access() {
  const database = await testDatabase();
  const time = { now: Date.UTC(2026, 0, 1) };
  const store = accessStore(database);
  const touched: number[] = [];
  const failing = { touch: false };
  const service = accessService({
    store: {
      ...store,
      touch: async (id, at) => {
        touched.push(at);
        if (failing.touch) throw new Error('disk full');
        await store.touch(id, at);
      },
    },
    clock: () => time.now,
    log: silentLog,
  });
  return { database, service, time, touched, failing, [Symbol.asyncDispose]: () => database[Symbol.asyncDispose]() };
}

const founding = { ownerEmail: 'Ada@Example.com', organisation: 'Acme', workspace: 'Crème Brûlée', project: 'Web' };
const unauthorized = { kind: 'unauthenticated', code: 'unauthorized' };

describe('the first run', () => {
  test('answers what init --json prints, in its order', async () => {
    await using at = await access();
    const founded = await at.service.initialise(founding);
    expect(Object.keys(founded)).toEqual([
      'organisationId',
      'workspaceId',
      'projectId',
      'ownerEmail',
      'ownerPassword',
      'workspaceKey',
      'managementKey',
      'ingestKey',
    ]);
    expect(founded).toMatchObject({
      ownerEmail: 'ada@example.com',
      workspaceKey: expect.stringMatching(/^slk_[A-Za-z0-9_-]{43}$/),
      managementKey: expect.stringMatching(/^sl_management_[A-Za-z0-9_-]{43}$/),
      ingestKey: expect.stringMatching(/^sl_public_[A-Za-z0-9_-]{43}$/),
    });
  });

  test('creates one of each, linked, with slugs from the names', async () => {
    await using at = await access();
    const founded = await at.service.initialise(founding);
    const { database } = at;
    expect(await database.all('SELECT id, name FROM organisations')).toEqual([
      { id: founded.organisationId, name: 'Acme' },
    ]);
    expect(await database.all('SELECT id, organisation_id, name, slug FROM workspaces')).toEqual([
      { id: founded.workspaceId, organisation_id: founded.organisationId, name: 'Crème Brûlée', slug: 'creme-brulee' },
    ]);
    expect(await database.all('SELECT id, workspace_id, name, slug FROM projects')).toEqual([
      { id: founded.projectId, workspace_id: founded.workspaceId, name: 'Web', slug: 'web' },
    ]);
    expect(await database.all('SELECT role FROM members')).toEqual([{ role: 'owner' }]);
    expect(
      await database.all(
        'SELECT kind, workspace_id, project_id, member_id IS NOT NULL AS acts FROM tokens ORDER BY kind',
      ),
    ).toEqual([
      { kind: 'ingest', workspace_id: null, project_id: founded.projectId, acts: 0 },
      { kind: 'management', workspace_id: null, project_id: null, acts: 0 },
      { kind: 'workspace', workspace_id: founded.workspaceId, project_id: null, acts: 1 },
    ]);
  });

  test('stores neither the password nor a key, only their hashes', async () => {
    await using at = await access();
    const founded = await at.service.initialise({ ...founding, ownerPassword: 'correct horse' });
    expect(founded.ownerPassword).toBe('correct horse');
    const users = await at.database.all<{ password_hash: string }>('SELECT * FROM users');
    const stored = JSON.stringify([users, await at.database.all('SELECT * FROM tokens')]);
    for (const plain of [founded.ownerPassword, founded.workspaceKey, founded.managementKey, founded.ingestKey]) {
      expect(stored).not.toContain(plain);
    }
    const hash = users[0]?.password_hash ?? '';
    expect(hash).toStartWith('$argon2id$');
    expect(await Bun.password.verify('correct horse', hash)).toBe(true);
  });

  test('happens once: a second is refused and changes nothing', async () => {
    await using at = await access();
    expect(await at.service.isSetUp()).toBe(false);
    const first = await at.service.initialise(founding);
    expect(await at.service.isSetUp()).toBe(true);
    await expect(at.service.initialise(founding)).rejects.toMatchObject({ kind: 'conflict', code: 'already_set_up' });
    expect(await at.database.all('SELECT id FROM organisations')).toEqual([{ id: first.organisationId }]);
  });

  test('happens once also when two come at the same time', async () => {
    await using at = await access();
    const both = await Promise.allSettled([at.service.initialise(founding), at.service.initialise(founding)]);
    expect(both.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected']);
    expect(both.find(({ status }) => status === 'rejected')).toMatchObject({ reason: { code: 'already_set_up' } });
    expect(await at.database.one('SELECT COUNT(*) AS n FROM users')).toEqual({ n: 1 });
  });

  test('with bad answers names each and leaves the data directory not set up', async () => {
    await using at = await access();
    await expect(at.service.initialise({ ownerEmail: 'x', project: '' })).rejects.toMatchObject({
      kind: 'invalid',
      issues: [{ path: ['ownerEmail'] }, { path: ['project'] }],
    });
    expect(await at.service.isSetUp()).toBe(false);
  });
});

describe('a workspace key', () => {
  test('acts as the member who owns it, in its workspace', async () => {
    await using at = await access();
    const founded = await at.service.initialise(founding);
    const principal = await at.service.authenticate(founded.workspaceKey);
    expect(principal).toEqual({
      tokenId: expect.any(String),
      workspaceId: founded.workspaceId,
      memberId: expect.any(String),
      userId: expect.any(String),
      role: 'owner',
    });
    expect(await at.service.workspace(principal)).toEqual({
      id: founded.workspaceId,
      name: 'Crème Brûlée',
      slug: 'creme-brulee',
      createdAt: '2026-01-01T00:00:00.000Z',
      apiKeyId: principal.tokenId,
      capabilities: ['automations'],
      egress: { default: 'allow', hosts: [] },
      member: { userId: principal.userId, name: 'ada', email: 'ada@example.com', role: 'owner' },
    });
  });

  test('that was revoked stops working at once', async () => {
    await using at = await access();
    const { workspaceKey } = await at.service.initialise(founding);
    const { tokenId } = await at.service.authenticate(workspaceKey);
    await at.database.write((tx) => tx.run('UPDATE tokens SET revoked_at = 1 WHERE id = ?', tokenId));
    await expect(at.service.authenticate(workspaceKey)).rejects.toMatchObject(unauthorized);
  });

  test('whose member left the workspace stops working at once', async () => {
    await using at = await access();
    const { workspaceKey } = await at.service.initialise(founding);
    await at.database.write(async (tx) => {
      await tx.run("INSERT INTO workspaces SELECT 'elsewhere', organisation_id, 'E', 'e', 0 FROM workspaces");
      await tx.run("UPDATE members SET workspace_id = 'elsewhere'");
    });
    await expect(at.service.authenticate(workspaceKey)).rejects.toMatchObject(unauthorized);
  });

  test('in another form, or unknown, is refused without being repeated', async () => {
    await using at = await access();
    const { workspaceKey } = await at.service.initialise(founding);
    const wrong = [
      '',
      'x',
      'slk_',
      'slk_short',
      `${workspaceKey}A`,
      ` ${workspaceKey}`,
      `SLK_${workspaceKey.slice(4)}`,
      mintToken('workspace'),
    ];
    for (const bearer of wrong) {
      const error = await at.service.authenticate(bearer).catch((thrown: unknown) => thrown);
      expect(error).toMatchObject(unauthorized);
      if (bearer.length > 5) expect((error as Error).message).not.toContain(bearer.trim());
    }
  });

  test('is what a token of another kind is told to be, even one that was cut off', async () => {
    await using at = await access();
    const { managementKey, ingestKey } = await at.service.initialise(founding);
    for (const bearer of [managementKey, ingestKey, mintToken('pat'), ingestKey.slice(0, 20)]) {
      const error = await at.service.authenticate(bearer).catch((thrown: unknown) => thrown);
      expect(error).toMatchObject(unauthorized);
      expect((error as Error).message).toMatch(/^wrong credential type.*workspace API key \(slk_/);
    }
  });
});

describe('the last use of a key', () => {
  const lastUsed = async (at: Awaited<ReturnType<typeof access>>) =>
    (await at.database.one<{ at: number }>("SELECT last_used_at AS at FROM tokens WHERE kind = 'workspace'"))?.at;

  test('is written at most once a minute', async () => {
    await using at = await access();
    const { workspaceKey } = await at.service.initialise(founding);
    const start = at.time.now;
    await Promise.all(Array.from({ length: 20 }, () => at.service.authenticate(workspaceKey)));
    at.time.now += 59_999;
    await at.service.authenticate(workspaceKey);
    expect(at.touched).toEqual([start]);
    at.time.now += 1;
    await at.service.authenticate(workspaceKey);
    expect(at.touched).toEqual([start, start + 60_000]);
    await at.service.settled();
    expect(await lastUsed(at)).toBe(start + 60_000);
  });

  test('is not written again right after a restart', async () => {
    await using at = await access();
    const { workspaceKey } = await at.service.initialise(founding);
    await at.database.write((tx) => tx.run('UPDATE tokens SET last_used_at = ?', at.time.now - 1));
    await at.service.authenticate(workspaceKey);
    expect(at.touched).toEqual([]);
  });

  test('that cannot be written harms no request', async () => {
    await using at = await access();
    const { workspaceKey } = await at.service.initialise(founding);
    at.failing.touch = true;
    await at.service.authenticate(workspaceKey);
    await at.service.settled();
    expect(await at.service.authenticate(workspaceKey)).toMatchObject({ role: 'owner' });
  });
});
