import { describe, expect, test } from 'bun:test';
import { AutomationCreate, AutomationPatch } from '../../src/automations/schema.ts';
import type { TestService } from '../support/service.ts';
import { testService } from '../support/service.ts';

const open = { default: 'allow', hosts: [] };
const closed = { default: 'deny', hosts: ['api.example.com'] };
const hosts = (count: number) => Array.from({ length: count }, (_, n) => `h${n}.example.com`);
const pathsOf = (body: { issues?: { path: string[] }[] }) => (body.issues ?? []).map(({ path }) => path.join('.'));

/** What one list may be, at the edges of its limits, and the places of what is wrong in it. */
const taken: [string, unknown][] = [
  ['open to everything', open],
  ['closed to everything', { default: 'deny', hosts: [] }],
  ['of a hundred hosts', { default: 'deny', hosts: hosts(100) }],
  [
    'of a name, a wildcard, an address and a single label',
    { default: 'allow', hosts: ['a.b', '*.a.b', '10.0.0.1', 'x'] },
  ],
];
const refused: [string, unknown, string[]][] = [
  ['null', null, ['']],
  ['without its default', { hosts: [] }, ['default']],
  ['without its hosts', { default: 'allow' }, ['hosts']],
  ['of another default', { default: 'Deny', hosts: [] }, ['default']],
  ['of a hundred and one hosts', { default: 'deny', hosts: hosts(101) }, ['hosts']],
  ['with a host twice, once with white space', { default: 'deny', hosts: ['a.b', 'c.d', ' a.b '] }, ['hosts.2']],
  [
    'with a scheme and a port',
    { default: 'deny', hosts: ['https://a.b', 'a.b:443', '*'] },
    ['hosts.0', 'hosts.1', 'hosts.2'],
  ],
  ['with a host in upper case', { default: 'deny', hosts: ['A.b'] }, ['hosts.0']],
  ['with an empty host', { default: 'deny', hosts: [''] }, ['hosts.0']],
  ['everything wrong', { default: 1, hosts: ['-'] }, ['default', 'hosts.0']],
];
const at = (place: string) => (path: string) => (path === '' ? place : `${place}.${path}`);

/** Makes a member of the workspace's owner, or an admin. */
const become = (service: TestService, role: string) =>
  service.data().database.write((tx) => tx.run('UPDATE members SET role = ?', role));

describe('the list of hosts of an automation', () => {
  const read = (schema: typeof AutomationCreate | typeof AutomationPatch, egress: unknown) =>
    schema.safeParse({
      name: 'n',
      configuration: {
        prompt: 'p',
        repositoryIds: [crypto.randomUUID()],
        triggers: [{ kind: 'schedule', frequency: 'daily', hour: 1, weekday: 1, timezone: 'UTC' }],
        egress,
      },
    });

  test.each(taken)('%s is taken', (_, egress) => {
    for (const schema of [AutomationCreate, AutomationPatch]) {
      expect(read(schema, egress)).toMatchObject({ success: true, data: { configuration: { egress } } });
    }
  });

  test.each(refused)('%s is refused at its place', (_, egress, paths) => {
    for (const schema of [AutomationCreate, AutomationPatch]) {
      const result = read(schema, egress);
      const found = result.error?.issues.map(({ path }) => path.join('.'));
      expect(found).toEqual(paths.map(at('configuration.egress')));
    }
  });

  test('is replaced whole, as a new version, and left alone by a change of something else', async () => {
    await using service = await testService();
    const id = await service.automation();
    const change = (configuration: object) => service.call('PATCH', `/automations/${id}`, { configuration });
    expect((await change({ egress: open })).body.automation).toMatchObject({ version: 1 });
    expect((await change({ egress: closed })).body.automation).toMatchObject({ version: 2 });
    const { automation } = (await change({ maxModelRequests: 7 })).body;
    expect(automation).toMatchObject({ version: 3, configuration: { egress: closed, maxModelRequests: 7 } });
  });

  test('of a version from before there were lists is open, and sending that back changes nothing', async () => {
    await using service = await testService();
    const id = await service.automation();
    await service
      .data()
      .database.write((tx) =>
        tx.run(`UPDATE automation_versions SET configuration = replace(configuration, '"egress"', '"was"')`),
      );
    const { automation } = (await service.call('GET', `/automations/${id}`)).body;
    expect(automation.configuration.egress).toEqual(open);
    expect((await service.call('PATCH', `/automations/${id}`, automation)).body.automation).toEqual(automation);
  });
});

describe('the list of hosts of a workspace', () => {
  test('is open at first, is changed by owner and admin, and answers as GET does', async () => {
    await using service = await testService();
    const before = (await service.call('GET', '/workspace')).body.workspace;
    expect(before.egress).toEqual(open);
    for (const role of ['owner', 'admin']) {
      await become(service, role);
      const changed = await service.call('PATCH', '/workspace', { egress: { ...closed, hosts: [`${role}.example`] } });
      expect(changed).toMatchObject({ status: 200, body: { workspace: { egress: { hosts: [`${role}.example`] } } } });
      expect((await service.call('GET', '/workspace')).body).toEqual(changed.body);
    }
    const { key } = await service.otherWorkspace();
    expect((await service.call('GET', '/workspace', undefined, { key })).body.workspace.egress).toEqual(open);
  });

  test('cannot be changed by a member, who is told what is wrong in the list first', async () => {
    await using service = await testService();
    await become(service, 'member');
    expect(await service.call('PATCH', '/workspace', { egress: closed })).toMatchObject({
      status: 403,
      body: { code: 'forbidden' },
    });
    expect((await service.call('PATCH', '/workspace', { egress: 1 })).status).toBe(400);
    expect((await service.call('GET', '/workspace')).body.workspace.egress).toEqual(open);
  });

  test('stays when nothing is sent, or only what is unknown', async () => {
    await using service = await testService();
    await service.call('PATCH', '/workspace', { egress: closed });
    for (const body of [undefined, {}, { name: 'Other' }]) {
      const answer = await service.call('PATCH', '/workspace', body);
      expect(answer).toMatchObject({ status: 200, body: { workspace: { egress: closed, name: 'Main' } } });
    }
  });

  test('at the edges of its limits', async () => {
    await using service = await testService();
    for (const [, egress] of taken) {
      expect((await service.call('PATCH', '/workspace', { egress })).body.workspace?.egress).toEqual(egress);
    }
    for (const [, egress, paths] of refused) {
      const answer = await service.call('PATCH', '/workspace', { egress });
      expect(answer).toMatchObject({ status: 400, body: { code: 'invalid_request' } });
      expect(pathsOf(answer.body)).toEqual(paths.map(at('egress')));
    }
  });
});
