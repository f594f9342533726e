import { describe, expect, test } from 'bun:test';
import { usualSurfaces } from '../../src/egress/egress.ts';
import { createServer } from '../../src/http/server.ts';
import { gitProvider } from '../../src/integrations/git.ts';
import { integrationOperations } from '../../src/integrations/operations.ts';
import { RepositoryUnavailable, type SourceProvider } from '../../src/integrations/provider.ts';
import { integrationService } from '../../src/integrations/service.ts';
import { integrationStore } from '../../src/integrations/store.ts';
import { newId } from '../../src/kernel/id.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { vaultOf } from '../../src/secrets/vault.ts';
import { testDatabase } from '../support/database.ts';

const url = 'https://git.example.com/octo/demo';
const token = 'ghp_0123456789abcdefghijklmnopqrstuvwxyz';
const vault = vaultOf(new Uint8Array(32).fill(1));

/** The service on two workspaces, over a provider that knows every repository and keeps what it was called with. */
async function connected() {
  const database = await testDatabase();
  const time = { now: Date.UTC(2026, 0, 1) };
  const workspaces = [newId(), newId()] as const;
  await database.write(async (tx) => {
    await tx.run("INSERT INTO organisations VALUES ('o', 'Acme', 0)");
    for (const id of workspaces) await tx.run("INSERT INTO workspaces VALUES (?, 'o', 'W', ?, 0)", id, id);
  });
  const discovered: [string, string | null][] = [];
  const checkedOut: [string, string | null][] = [];
  const origin = { defaultBranch: 'main' };
  const git: SourceProvider = {
    id: 'git',
    // The real one: it reads nothing but the text.
    cloneUrl: gitProvider({ dataDir: '/nowhere', extraCa: null, allowsPlainHttp: () => false }).cloneUrl,
    async discover(text, given) {
      discovered.push([text, given]);
      return { fullName: 'octo/demo', defaultBranch: origin.defaultBranch, private: given !== null };
    },
    async checkout(repository, given) {
      checkedOut.push([repository.cloneUrl, given]);
      return { branch: 'main', commit: 'c', open: () => new ReadableStream() };
    },
  };
  const service = integrationService({
    store: integrationStore(database),
    vault,
    providers: { git },
    clock: () => time.now++,
  });
  const [workspaceId] = workspaces;
  return {
    database,
    service,
    workspaces,
    workspaceId,
    origin,
    discovered,
    checkedOut,
    connect: (given: { url?: string; name?: string; token?: string } = {}, to: string = workspaceId) =>
      service.connectGit(to, { url, ...given }),
    async repository() {
      const { repositories } = await service.list(workspaceId);
      const [row] = await service.repositories(
        workspaceId,
        repositories.slice(0, 1).map(({ id }) => id),
      );
      if (!row) throw new Error('nothing is connected');
      return row;
    },
    [Symbol.asyncDispose]: () => database[Symbol.asyncDispose](),
  };
}

describe('connecting a git repository', () => {
  test('answers the documented fields, and the list holds them', async () => {
    await using at = await connected();
    const answer = await at.connect();
    expect(answer).toEqual({
      integration: { id: expect.any(String), provider: 'git', displayName: 'octo/demo' },
      repositories: [
        {
          id: expect.any(String),
          integrationAccountId: answer.integration.id,
          fullName: 'octo/demo',
          defaultBranch: 'main',
          private: false,
        },
      ],
    });
    const server = createServer({
      operations: integrationOperations({ service: at.service }),
      authenticate: async (workspaceId) => ({ tokenId: 't', workspaceId, memberId: 'm', userId: 'u', role: 'member' }),
      log: silentLog,
    });
    const list = async (key: string) =>
      (
        await server.fetch(
          new Request('http://localhost/api/v1/integrations', { headers: { authorization: `Bearer ${key}` } }),
        )
      ).json();
    expect(await list(at.workspaces[0])).toEqual({
      integrations: [answer.integration],
      repositories: answer.repositories,
      resources: [],
    });
    expect(await list(at.workspaces[1])).toEqual({ integrations: [], repositories: [], resources: [] });
  });

  test('again under the same URL keeps the ids and changes what was given', async () => {
    await using at = await connected();
    const first = await at.connect({ token });
    const placeholder = async () => (await at.service.credentialsFor([await at.repository()]))[0]?.secret.placeholder;
    const before = await placeholder();
    at.origin.defaultBranch = 'trunk';
    const again = await at.connect({ url: ` ${url}/ `, name: 'Demo', token: 'glpat-other' });
    expect(again).toMatchObject({
      integration: { id: first.integration.id, displayName: 'Demo' },
      repositories: [{ id: first.repositories[0]?.id, defaultBranch: 'trunk' }],
    });
    expect(await at.service.credentialsFor([await at.repository()])).toMatchObject([
      { secret: { value: 'glpat-other' } },
    ]);
    // Runs that are open hold the old one.
    expect(await placeholder()).toBe(before);
    expect((await at.service.list(at.workspaceId)).repositories).toHaveLength(1);
  });

  test('again without a name and a token keeps both, and reads with the token', async () => {
    await using at = await connected();
    await at.connect({ name: 'Demo', token });
    expect(await at.connect()).toMatchObject({
      integration: { displayName: 'Demo' },
      repositories: [{ private: true }],
    });
    expect(at.discovered).toEqual([
      [url, token],
      [url, token],
    ]);
    expect(await at.service.credentialsFor([await at.repository()])).toHaveLength(1);
  });

  test('twice at once makes one, and in another workspace one more', async () => {
    await using at = await connected();
    const [one, other] = await Promise.all([at.connect(), at.connect()]);
    expect(one).toEqual(other);
    const elsewhere = await at.connect({}, at.workspaces[1]);
    expect(elsewhere.integration.id).not.toBe(one.integration.id);
    expect(at.discovered.at(-1)).toEqual([url, null]);
  });

  test.each([
    [{ url: 'https://ada:hunter2@git.example.com/octo/demo' }, 'url'],
    [{ url: 'git@git.example.com:octo/demo' }, 'url'],
    [{ url: '' }, 'url'],
    [{ name: ' ' }, 'name'],
    [{ name: 'x'.repeat(121) }, 'name'],
    [{ name: 'a\nb' }, 'name'],
    [{ token: '' }, 'token'],
    [{ token: 'hunter2 x' }, 'token'],
    [{ token: 'hunter2\r\nX: y' }, 'token'],
    [{ url: 'file:///srv/demo', token }, 'token'],
  ])('with %j is refused by its field, before anything is read or kept', async (given, field) => {
    await using at = await connected();
    const error = await at.connect(given).catch((thrown) => thrown);
    expect(error).toMatchObject({ kind: 'invalid', issues: [{ path: [field] }] });
    expect(JSON.stringify(error.issues) + error.message).not.toContain('hunter2');
    expect(at.discovered).toEqual([]);
    expect((await at.service.list(at.workspaceId)).integrations).toEqual([]);
  });
});

describe('a token', () => {
  test('is sealed in the database and bound to its row', async () => {
    await using at = await connected();
    await at.connect({ token });
    await at.connect({ url: `${url}-2`, token: `${token}2` });
    const rows = await at.database.all<{ id: string; sealed_token: string }>(
      'SELECT * FROM integrations ORDER BY created_at',
    );
    expect(JSON.stringify(rows)).not.toContain(token.slice(4));
    const [first, second] = rows;
    await at.database.write((tx) =>
      tx.run('UPDATE integrations SET sealed_token = ? WHERE id = ?', second?.sealed_token ?? '', first?.id ?? ''),
    );
    await expect(at.service.credentialsFor([await at.repository()])).rejects.toThrow('belongs elsewhere');
  });

  test('leaves towards egress only, with its placeholder and for its own host', async () => {
    await using at = await connected();
    await at.connect({ url: 'https://git.example.com:8443/octo/demo', token });
    await at.connect({ url: 'file:///srv/demo' });
    const { repositories } = await at.service.list(at.workspaceId);
    const rows = await at.service.repositories(
      at.workspaceId,
      repositories.map(({ id }) => id),
    );
    const [credential, ...more] = await at.service.credentialsFor(rows);
    expect(more).toEqual([]);
    expect(credential).toEqual({
      cloneUrl: 'https://git.example.com:8443/octo/demo',
      username: 'x-access-token',
      secret: {
        name: 'git:octo/demo',
        placeholder: expect.stringMatching(/^ghp_/),
        value: token,
        allowedHosts: ['git.example.com'],
        surfaces: usualSurfaces,
      },
    });
    expect(credential?.secret.placeholder).toContain(vault.marker);
    expect(JSON.stringify(rows)).not.toContain(token);
  });

  test('goes to the provider for a checkout', async () => {
    await using at = await connected();
    await at.connect({ token });
    await at.service.checkout(await at.repository());
    expect(at.checkedOut).toEqual([[url, token]]);
  });
});

describe('what is connected', () => {
  test('is found in the asked order, in its own workspace only', async () => {
    await using at = await connected();
    const ids: string[] = [];
    for (const name of ['a', 'b', 'c'])
      ids.push((await at.connect({ url: `${url}-${name}` })).repositories[0]?.id ?? '');
    const asked = [ids[2] ?? '', newId(), ids[0] ?? ''];
    const found = await at.service.repositories(at.workspaceId, asked);
    expect(found.map(({ id }) => id)).toEqual([ids[2] ?? '', ids[0] ?? '']);
    expect(await at.service.missingRepositories(at.workspaceId, asked)).toEqual([asked[1] ?? '']);
    expect(await at.service.missingRepositories(at.workspaces[1], ids)).toEqual(ids);
    expect((await at.service.everyRepositoryId()).sort()).toEqual(ids.toSorted());
  });

  test('tells the provider of each account', async () => {
    await using at = await connected();
    const { integration } = await at.connect();
    expect(await at.service.accounts(at.workspaceId, [integration.id, newId()])).toEqual(
      new Map([[integration.id, 'git']]),
    );
    expect(await at.service.accounts(at.workspaces[1], [integration.id])).toEqual(new Map());
    expect(await at.service.resources(at.workspaceId, integration.id, 'channel')).toEqual(new Set());
  });

  test('can be removed with its repositories, by its own workspace only', async () => {
    await using at = await connected();
    const { integration } = await at.connect({ token });
    const row = await at.repository();
    await expect(at.service.remove(at.workspaces[1], integration.id)).rejects.toMatchObject({ kind: 'absent' });
    await at.service.remove(at.workspaceId, integration.id);
    expect(await at.service.list(at.workspaceId)).toEqual({ integrations: [], repositories: [], resources: [] });
    await expect(at.service.remove(at.workspaceId, integration.id)).rejects.toMatchObject({ kind: 'absent' });
    expect(await at.service.credentialsFor([row])).toEqual([]);
    await expect(at.service.checkout(row)).rejects.toBeInstanceOf(RepositoryUnavailable);
  });
});
