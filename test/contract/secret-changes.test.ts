import { describe, expect, test } from 'bun:test';
import type { TestService } from '../support/service.ts';
import { testService } from '../support/service.ts';

const unknown = '0199aaaa-0000-7000-8000-000000000000';
const absent = { status: 404, body: { code: 'secret_not_found', error: 'Secret not found' } };
const every = ['headers', 'query', 'path', 'body', 'websocket'];
const hosts = (count: number) => Array.from({ length: count }, (_, n) => `h${n}.example.com`);
const pathsOf = (body: { issues?: { path: string[] }[] }) => (body.issues ?? []).map(({ path }) => path.join('.'));

const plain = async (service: TestService, id: string) => {
  const row = await service
    .data()
    .database.one<{ sealed_value: string; placeholder: string }>(
      'SELECT sealed_value, placeholder FROM secrets WHERE id = ?',
      id,
    );
  return { ...row, value: service.data().vault.open(row?.sealed_value ?? '', `secrets/${id}/value`) };
};
const shown = async (service: TestService) => (await service.call('GET', '/secrets')).body.secrets;

describe('surfaces of a secret', () => {
  test('are headers and query unless it says others, and are shown', async () => {
    await using service = await testService();
    const secret = { name: 'A', value: 'v', allowedHosts: ['a.b'] };
    const usual = await service.call('POST', '/secrets', secret);
    expect(usual.body.secret).toMatchObject({ surfaces: ['headers', 'query'] });
    const all = await service.call('POST', '/secrets', { ...secret, name: 'B', surfaces: every });
    expect(all.body.secret).toMatchObject({ surfaces: every });
    expect(await shown(service)).toEqual([all.body.secret, usual.body.secret]);
  });

  test.each<[string, unknown, string[]]>([
    ['none', [], ['surfaces']],
    ['one twice', ['body', 'path', 'body'], ['surfaces.2']],
    ['an unknown one', ['headers', 'cookie'], ['surfaces.1']],
    ['one in upper case', ['Headers'], ['surfaces.0']],
    ['no list', 'headers', ['surfaces']],
    ['null', null, ['surfaces']],
  ])('that are %s are refused at their place', async (_, surfaces, paths) => {
    await using service = await testService();
    const id = await service.secret('OTHER', 'v');
    const made = await service.call('POST', '/secrets', { name: 'A', value: 'v', allowedHosts: ['a.b'], surfaces });
    const changed = await service.call('PATCH', `/secrets/${id}`, { surfaces });
    for (const answer of [made, changed]) {
      expect(answer).toMatchObject({ status: 400, body: { code: 'invalid_request' } });
      expect(pathsOf(answer.body)).toEqual(paths);
    }
  });
});

describe('changing a secret', () => {
  test('replaces what is sent; the name, the placeholder and the rest stay', async () => {
    await using service = await testService();
    const id = await service.secret('API_TOKEN', 'the old value of it');
    const before = await plain(service, id);
    const [present] = await shown(service);
    const rotated = await service.call('PATCH', `/secrets/${id}`, { value: '  the new\nvalue ', name: 'OTHER' });
    expect(rotated).toMatchObject({ status: 200, body: { secret: present } });
    expect(await plain(service, id)).toMatchObject({ value: '  the new\nvalue ', placeholder: before.placeholder });
    const narrowed = await service.call('PATCH', `/secrets/${id.toUpperCase()}`, {
      allowedHosts: [' b.example '],
      surfaces: ['body'],
    });
    expect(narrowed.body.secret).toEqual({ ...present, allowedHosts: ['b.example'], surfaces: ['body'] });
    expect(await shown(service)).toEqual([narrowed.body.secret]);
    expect((await plain(service, id)).value).toBe('  the new\nvalue ');
  });

  test('to the same value seals it anew', async () => {
    await using service = await testService();
    const id = await service.secret('API_TOKEN', 'the same value');
    const before = await plain(service, id);
    await service.call('PATCH', `/secrets/${id}`, { value: 'the same value' });
    const after = await plain(service, id);
    expect(after.value).toBe('the same value');
    expect(after.sealed_value).not.toBe(before.sealed_value);
  });

  test('with nothing, or what GET answered, changes nothing', async () => {
    await using service = await testService();
    const id = await service.secret('API_TOKEN', 'v');
    const before = await plain(service, id);
    const [present] = await shown(service);
    for (const body of [undefined, {}, { surplus: 1 }, present]) {
      expect(await service.call('PATCH', `/secrets/${id}`, body)).toMatchObject({
        status: 200,
        body: { secret: present },
      });
    }
    expect(await plain(service, id)).toEqual(before);
  });

  test.each<[string, object, string[]]>([
    ['an empty value', { value: '' }, ['value']],
    ['a value of 65537', { value: 'a'.repeat(65_537) }, ['value']],
    ['NUL in the value', { value: 'a\0b' }, ['value']],
    ['null', { value: null, allowedHosts: null }, ['value', 'allowedHosts']],
    ['no host', { allowedHosts: [] }, ['allowedHosts']],
    ['21 hosts', { allowedHosts: hosts(21) }, ['allowedHosts']],
    ['a host twice', { allowedHosts: ['a.b', 'a.b'] }, ['allowedHosts.1']],
    ['everything wrong', { value: 1, allowedHosts: ['A'], surfaces: [] }, ['value', 'allowedHosts.0', 'surfaces']],
  ])('to %s is refused at its place, nothing changes, nothing is repeated', async (_, body, paths) => {
    await using service = await testService();
    const id = await service.secret('API_TOKEN', 'v');
    const answer = await service.call('PATCH', `/secrets/${id}`, body);
    expect(answer.status).toBe(400);
    expect(pathsOf(answer.body)).toEqual(paths);
    expect(JSON.stringify(answer.body)).not.toContain('aaaa');
    expect((await plain(service, id)).value).toBe('v');
  });

  test('takes values and hosts up to their limits', async () => {
    await using service = await testService();
    const id = await service.secret('API_TOKEN', 'v');
    const body = { value: '🔑'.repeat(32_768), allowedHosts: hosts(20), surfaces: every };
    expect((await service.call('PATCH', `/secrets/${id}`, body)).status).toBe(200);
    expect((await plain(service, id)).value).toBe(body.value);
  });
});

describe('deleting a secret', () => {
  test('removes it, and its name is free again', async () => {
    await using service = await testService();
    const id = await service.secret('API_TOKEN', 'v');
    expect(await service.call('DELETE', `/secrets/${id}`)).toMatchObject({ status: 200, body: { deleted: true } });
    expect(await shown(service)).toEqual([]);
    expect(await service.call('DELETE', `/secrets/${id}`)).toMatchObject(absent);
    expect(await service.secret('API_TOKEN', 'w')).not.toBe(id);
  });

  test('that automations use names them, and keeps everything', async () => {
    await using service = await testService();
    const id = await service.secret('API_TOKEN', 'v');
    const automations = [];
    for (const name of ['Triage', 'Daily']) {
      const automation = await service.automation({ workspaceSecretIds: [id] });
      await service.call('PATCH', `/automations/${automation}`, { name });
      automations.push(automation);
    }
    // One that names the id in its prompt only, or used it in an earlier version, does not use it.
    await service.automation({ prompt: `Look at "${id}".` });
    const earlier = await service.automation({ workspaceSecretIds: [id] });
    await service.call('PATCH', `/automations/${earlier}`, { configuration: { workspaceSecretIds: [] } });
    const refusal = await service.call('DELETE', `/secrets/${id}?detach=false`);
    expect(refusal).toMatchObject({ status: 409, body: { code: 'secret_in_use' } });
    expect(refusal.body.error).toContain('the automations "Daily", "Triage".');
    expect(await shown(service)).toHaveLength(1);
    for (const automation of automations) {
      expect((await service.call('GET', `/automations/${automation}`)).body.automation.version).toBe(1);
    }
  });

  test('with detach takes it out of each of them as a new version', async () => {
    await using service = await testService();
    const [id, other] = [await service.secret('API_TOKEN', 'v'), await service.secret('OTHER', 'v')];
    const using = await service.automation({ workspaceSecretIds: [other, id] });
    const spared = await service.automation({ workspaceSecretIds: [other] });
    service.pass(1000);
    expect((await service.call('DELETE', `/secrets/${id}?detach=true`)).body).toEqual({ deleted: true });
    const { automation } = (await service.call('GET', `/automations/${using}`)).body;
    expect(automation).toMatchObject({ version: 2, configuration: { workspaceSecretIds: [other] } });
    expect(automation.updatedAt > automation.createdAt).toBe(true);
    expect((await service.call('GET', `/automations/${spared}`)).body.automation.version).toBe(1);
    const versions = await service
      .data()
      .database.all<{ version: number; created_by: string }>(
        'SELECT version, created_by FROM automation_versions WHERE automation_id = ? ORDER BY version',
        using,
      );
    expect(versions.map(({ version }) => version)).toEqual([1, 2]);
    expect(new Set(versions.map(({ created_by }) => created_by)).size).toBe(1);
  });

  test('by a detach that is neither true nor false is refused', async () => {
    await using service = await testService();
    const id = await service.secret('API_TOKEN', 'v');
    const answer = await service.call('DELETE', `/secrets/${id}?detach=yes`);
    expect(answer.status).toBe(400);
    expect(pathsOf(answer.body)).toEqual(['detach']);
    expect(await shown(service)).toHaveLength(1);
  });
});

test('a secret of another workspace, or of none, is 404, and an id that is none is 400', async () => {
  await using service = await testService();
  const id = await service.secret('API_TOKEN', 'v');
  const { key } = await service.otherWorkspace();
  for (const [place, options] of [
    [unknown, {}],
    [id, { key }],
  ] as const) {
    for (const body of [{}, { value: 'stolen' }]) {
      expect(await service.call('PATCH', `/secrets/${place}`, body, options)).toMatchObject(absent);
    }
    expect(await service.call('DELETE', `/secrets/${place}?detach=true`, undefined, options)).toMatchObject(absent);
  }
  expect((await plain(service, id)).value).toBe('v');
  const wrong = await service.call('PATCH', '/secrets/nope', { value: '' });
  expect(pathsOf(wrong.body)).toEqual(['secretId', 'value']);
});
