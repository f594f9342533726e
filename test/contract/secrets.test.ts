import { describe, expect, test } from 'bun:test';
import { newId } from '../../src/kernel/id.ts';
import { secretOperations } from '../../src/secrets/operations.ts';
import type { NewSecret } from '../../src/secrets/schema.ts';
import { secretService } from '../../src/secrets/service.ts';
import { secretStore } from '../../src/secrets/store.ts';
import { vaultOf } from '../../src/secrets/vault.ts';
import { testDatabase } from '../support/database.ts';

const vault = vaultOf(new Uint8Array(32).fill(1));
const token: NewSecret = {
  name: 'GH_TOKEN',
  value: 'ghp_0123456789abcdefghijklmnopqrstuvwxyz',
  allowedHosts: ['api.github.com'],
  surfaces: ['headers', 'query'],
};

/** A database with one workspace, the service on it, and a clock that the test turns. */
async function secrets() {
  const database = await testDatabase();
  const time = { now: Date.UTC(2026, 0, 1) };
  const clock = () => time.now;
  const workspaceId = newId();
  await database.write(async (tx) => {
    await tx.run("INSERT INTO organisations VALUES ('o', 'Acme', 0)");
    await tx.run("INSERT INTO workspaces VALUES (?, 'o', 'Main', 'main', 0)", workspaceId);
  });
  const service = secretService({ store: secretStore(database), vault, clock });
  return { database, service, workspaceId, time, [Symbol.asyncDispose]: () => database[Symbol.asyncDispose]() };
}

describe('a workspace secret', () => {
  test('is shown with its documented fields only, when made and in the list', async () => {
    await using at = await secrets();
    const secret = await at.service.create(at.workspaceId, token);
    expect(secret).toEqual({
      id: expect.stringMatching(/^[0-9a-f-]{36}$/),
      name: 'GH_TOKEN',
      allowedHosts: ['api.github.com'],
      surfaces: ['headers', 'query'],
      createdAt: '2026-01-01T00:00:00.000Z',
    });
    expect(await at.service.list(at.workspaceId)).toEqual([secret]);
  });

  test('is listed newest first, also within one millisecond', async () => {
    await using at = await secrets();
    for (const name of ['A', 'B', 'C']) await at.service.create(at.workspaceId, { ...token, name });
    at.time.now -= 1;
    await at.service.create(at.workspaceId, { ...token, name: 'OLDER' });
    expect((await at.service.list(at.workspaceId)).map(({ name }) => name)).toEqual(['C', 'B', 'A', 'OLDER']);
  });

  test('of a name that is taken is refused and changes nothing, also when two come at once', async () => {
    await using at = await secrets();
    const both = await Promise.allSettled([1, 2].map(() => at.service.create(at.workspaceId, token)));
    expect(both.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected']);
    await expect(at.service.create(at.workspaceId, { ...token, value: 'other' })).rejects.toMatchObject({
      kind: 'conflict',
      code: 'secret_name_taken',
    });
    const [only, ...more] = await at.service.list(at.workspaceId);
    expect(more).toEqual([]);
    expect(await at.service.forRun(at.workspaceId, [only?.id ?? ''])).toMatchObject([{ value: token.value }]);
  });

  test('is not in the database in plain text', async () => {
    await using at = await secrets();
    await at.service.create(at.workspaceId, token);
    const rows = JSON.stringify(await at.database.all('SELECT * FROM secrets'));
    expect(rows).toContain('GH_TOKEN');
    expect(rows).not.toContain(token.value.slice(4));
    expect(rows).not.toContain(Buffer.from(token.value).toString('base64').slice(8, 30));
  });

  test('whose sealed value was moved to another row does not open there', async () => {
    await using at = await secrets();
    const one = await at.service.create(at.workspaceId, token);
    const other = await at.service.create(at.workspaceId, { ...token, name: 'OTHER', value: 'v' });
    await at.database.write((tx) =>
      tx.run(
        'UPDATE secrets SET sealed_value = (SELECT sealed_value FROM secrets WHERE id = ?) WHERE id = ?',
        one.id,
        other.id,
      ),
    );
    await expect(at.service.forRun(at.workspaceId, [other.id])).rejects.toThrow('belongs elsewhere');
  });
});

describe('for a run', () => {
  test('values come as they were sent, in the order asked for, with placeholders of this installation', async () => {
    await using at = await secrets();
    const value = '  kept – as sent 🔑\n';
    const one = await at.service.create(at.workspaceId, {
      ...token,
      name: 'ONE',
      value,
      allowedHosts: ['*.a.b', '10.0.0.1'],
    });
    const other = await at.service.create(at.workspaceId, token);
    const [first, second, ...more] = await at.service.forRun(at.workspaceId, [other.id, one.id]);
    expect(more).toEqual([]);
    expect(first).toMatchObject({ name: 'GH_TOKEN', value: token.value, allowedHosts: ['api.github.com'] });
    expect(first?.placeholder).toStartWith(`ghp_${vault.marker}`);
    expect(first?.placeholder).toHaveLength(token.value.length);
    expect(second).toMatchObject({ name: 'ONE', value, allowedHosts: ['*.a.b', '10.0.0.1'] });
  });

  test("another workspace's secrets do not exist", async () => {
    await using at = await secrets();
    const { id } = await at.service.create(at.workspaceId, token);
    const elsewhere = '0199aaaa-0000-7000-8000-000000000000';
    expect(await at.service.forRun(elsewhere, [id])).toEqual([]);
    expect(await at.service.missing(elsewhere, [id])).toEqual([id]);
    expect(await at.service.list(elsewhere)).toEqual([]);
  });

  test('missing and namesOf keep the order of the ids and need none', async () => {
    await using at = await secrets();
    const one = await at.service.create(at.workspaceId, { ...token, name: 'ONE' });
    const two = await at.service.create(at.workspaceId, { ...token, name: 'TWO' });
    expect(await at.service.missing(at.workspaceId, ['x', one.id, 'y'])).toEqual(['x', 'y']);
    expect(await at.service.namesOf(at.workspaceId, [two.id, 'x', one.id])).toEqual(['TWO', 'ONE']);
    expect(await at.service.missing(at.workspaceId, [])).toEqual([]);
    expect(await at.service.forRun(at.workspaceId, [])).toEqual([]);
  });
});

test('the operations are those of the interface, and their answers carry no value', async () => {
  await using at = await secrets();
  const operations = secretOperations({ service: at.service });
  expect(operations.map((each) => [each?.id, each?.method, each?.path, each?.status])).toEqual([
    ['list_secrets', 'GET', '/secrets', 200],
    ['create_secret', 'POST', '/secrets', 201],
    ['update_secret', 'PATCH', '/secrets/:secretId', 200],
    ['delete_secret', 'DELETE', '/secrets/:secretId', 200],
  ]);
  const secret = await at.service.create(at.workspaceId, token);
  for (const { output } of operations) {
    const leaking = { ...secret, value: 'LEAK' };
    const answer = output.parse({ secrets: [leaking], secret: leaking, deleted: true });
    expect(JSON.stringify(answer)).not.toContain('LEAK');
  }
});
