import { describe, expect, test } from 'bun:test';
import { automationOperations } from '../../src/automations/operations.ts';
import type { References } from '../../src/automations/references.ts';
import { automationService } from '../../src/automations/service.ts';
import { automationStore } from '../../src/automations/store.ts';
import { createServer } from '../../src/http/server.ts';
import { newId } from '../../src/kernel/id.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { testDatabase } from '../support/database.ts';

/** Deterministic UUIDs, so that tables can name them. */
const uuid = (kind: number, n = 0) => `${String(kind).repeat(8)}-0000-7000-8000-${String(n).padStart(12, '0')}`;
const repository = (n = 0) => uuid(1, n);
const secret = (n = 0) => uuid(2, n);
const account = (n = 0) => uuid(3, n);
const slack = uuid(4);
const sentry = uuid(5);
const discord = uuid(6);
const unknown = uuid(9);

const providers = new Map([
  [slack, 'slack'],
  [sentry, 'sentry'],
  [discord, 'discord'],
] as const);
const references: References = {
  async accounts(_, ids) {
    const known = ids.filter((id) => id.startsWith('3') || providers.has(id));
    return new Map(known.map((id) => [id, providers.get(id) ?? 'git']));
  },
  resources: async () => new Set(Array.from({ length: 102 }, (_, n) => `C${n}`)),
  missingRepositories: async (_, ids) => ids.filter((id) => !id.startsWith('1')),
  missingSecrets: async (_, ids) => ids.filter((id) => !id.startsWith('2')),
};

const many = <T>(count: number, item: (n: number) => T): T[] => Array.from({ length: count }, (_, n) => item(n));
const schedule = (hour = 9) => ({ kind: 'schedule', frequency: 'daily', hour, weekday: 1, timezone: 'Europe/Paris' });
const onSlack = { kind: 'slack', integrationAccountId: slack, channelIds: ['C1'], eventMode: 'both' };
const onSentry = { kind: 'sentry', integrationAccountId: sentry, projectIds: ['C1'], eventTypes: ['new_issue'] };
const onDiscord = { kind: 'discord', integrationAccountId: discord, channelIds: ['C1'] };
const notify = (n = 1) => ({ kind: 'slack', channelId: `C${n}`, integrationAccountId: slack });

const valid = { prompt: 'Fix the bug', repositoryIds: [repository()], triggers: [schedule()] };
type Json = Record<string, unknown>;
const automation = (configuration: Json = {}, rest: Json = {}): Json => ({
  name: 'Triage',
  configuration: { ...valid, ...configuration },
  ...rest,
});

interface Answer {
  readonly status: number;
  // biome-ignore lint/suspicious/noExplicitAny: answers are compared as they come.
  readonly body: any;
}

/** The operations behind the real edge, on a database with two workspaces; the key is the workspace's id. */
async function api() {
  const database = await testDatabase();
  const time = { now: Date.UTC(2026, 0, 5, 12) };
  const workspaces = [newId(), newId()] as const;
  await database.write(async (tx) => {
    await tx.run("INSERT INTO organisations VALUES ('o', 'Acme', 0)");
    for (const id of workspaces) await tx.run("INSERT INTO workspaces VALUES (?, 'o', 'W', ?, 0)", id, id);
  });
  const service = automationService({ store: automationStore(database), references, clock: () => time.now });
  const server = createServer({
    operations: automationOperations({ service }),
    authenticate: async (workspaceId) => ({
      tokenId: 't',
      workspaceId,
      memberId: 'm',
      userId: 'user-1',
      role: 'member',
    }),
    log: silentLog,
  });
  const call = async (method: string, path: string, body?: unknown, key: string = workspaces[0]): Promise<Answer> => {
    const headers = {
      authorization: `Bearer ${key}`,
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
    };
    const response = await server.fetch(
      new Request(`http://localhost/api/v1${path}`, {
        method,
        headers,
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      }),
    );
    return { status: response.status, body: await response.json() };
  };
  return {
    database,
    service,
    time,
    workspaces,
    call,
    create: async (body: Json = automation()): Promise<Json & { id: string }> => {
      const answer = await call('POST', '/automations', body);
      expect(answer).toMatchObject({ status: 201 });
      return answer.body.automation;
    },
    [Symbol.asyncDispose]: () => database[Symbol.asyncDispose](),
  };
}

const pathsOf = ({ body }: Answer): string[] =>
  (body.issues ?? []).map(({ path }: { path: string[] }) => path.join('.'));

describe('creating an automation', () => {
  test('answers it whole, with every default', async () => {
    await using at = await api();
    const created = await at.create();
    expect(created).toEqual({
      id: expect.stringMatching(/^[0-9a-f-]{36}$/),
      name: 'Triage',
      description: '',
      enabled: true,
      version: 1,
      createdAt: '2026-01-05T12:00:00.000Z',
      updatedAt: '2026-01-05T12:00:00.000Z',
      configuration: {
        ...valid,
        contextAccountIds: [],
        notifications: [],
        workspaceSecretIds: [],
        harness: 'codex',
        modelProvider: 'openai',
        model: 'gpt-5.4',
        maxModelRequests: 500,
        maxOutputTokensPerRequest: 32_000,
        maxRuntimeSeconds: 1800,
        toolPolicy: 'full',
        egress: { default: 'allow', hosts: [] },
      },
    });
    expect(await at.call('GET', `/automations/${created.id}`)).toEqual({ status: 200, body: { automation: created } });
  });

  test('keeps every field that was sent, and drops unknown ones', async () => {
    await using at = await api();
    const configuration = {
      prompt: '  Fix\nit  ',
      repositoryIds: [repository(2), repository(1)],
      triggers: [onSlack, { ...onSentry, excludedEnvironments: ['dev'] }, onDiscord, schedule()],
      contextAccountIds: [account()],
      notifications: [notify()],
      workspaceSecretIds: [secret()],
      harness: 'claude_agent_sdk',
      modelProvider: 'anthropic',
      model: 'claude-sonnet-4.5',
      maxModelRequests: 1,
      maxOutputTokensPerRequest: 256,
      maxRuntimeSeconds: 60,
      toolPolicy: 'full',
      egress: { default: 'deny', hosts: ['*.example.com', '10.0.0.1'] },
    };
    const created = await at.create({
      name: ' Triage ',
      description: ' Why ',
      enabled: false,
      surplus: 1,
      configuration: {
        ...configuration,
        surplus: 1,
        notifications: [{ ...notify(), surplus: 1 }],
        model: ' claude-sonnet-4.5 ',
      },
    });
    expect(created).toMatchObject({ name: 'Triage', description: 'Why', enabled: false });
    expect(created.configuration).toEqual(configuration);
  });

  test('records version 1 under the member who made it', async () => {
    await using at = await api();
    const { id } = await at.create();
    expect(await at.database.all('SELECT automation_id, version, created_by FROM automation_versions')).toEqual([
      { automation_id: id, version: 1, created_by: 'user-1' },
    ]);
  });

  test('fills in no excluded environments', async () => {
    await using at = await api();
    expect(await at.create(automation({ triggers: [onSentry] }))).toMatchObject({
      configuration: { triggers: [{ ...onSentry, excludedEnvironments: [] }] },
    });
  });
});

test.each([
  ['name', (characters: number) => automation({}, { name: '😀'.repeat(characters) }), 60, ['name']],
  [
    'prompt',
    (characters: number) => automation({ prompt: '😀'.repeat(characters) }),
    25_000,
    ['configuration', 'prompt'],
  ],
] as const)('the length of %s is counted in UTF-16 units', async (_, make, most, path) => {
  await using service = await api();
  expect((await service.call('POST', '/automations', make(most))).status).toBe(201);
  const answer = await service.call('POST', '/automations', make(most + 1));
  expect(answer).toMatchObject({ status: 400, body: { issues: [{ path }] } });
});

const text = (length: number) => 'x'.repeat(length);
const list = (item: (n: number) => unknown) => (count: number) => many(count, item);
const slackWith = (field: Json) => [{ ...onSlack, ...field }];
const sentryWith = (field: Json) => [{ ...onSentry, ...field }];

/** What has a size, with the smallest and the largest that is taken; and where the issue is. */
const limits: [field: string, least: number, most: number, make: (size: number) => Json, path?: string][] = [
  ['name', 1, 120, (size) => automation({}, { name: text(size) })],
  ['description', 0, 2000, (size) => automation({}, { description: text(size) })],
  ['configuration.prompt', 1, 50_000, (size) => automation({ prompt: text(size) })],
  ['configuration.repositoryIds', 1, 10, (size) => automation({ repositoryIds: list(repository)(size) })],
  ['configuration.triggers', 1, 10, (size) => automation({ triggers: list(schedule)(size) })],
  ['configuration.contextAccountIds', 0, 50, (size) => automation({ contextAccountIds: list(account)(size) })],
  ['configuration.notifications', 0, 10, (size) => automation({ notifications: list(notify)(size) })],
  ['configuration.workspaceSecretIds', 0, 20, (size) => automation({ workspaceSecretIds: list(secret)(size) })],
  ['configuration.model', 1, 255, (size) => automation({ model: text(size) })],
  ['configuration.maxModelRequests', 1, 1000, (size) => automation({ maxModelRequests: size })],
  ['configuration.maxOutputTokensPerRequest', 256, 100_000, (size) => automation({ maxOutputTokensPerRequest: size })],
  ['configuration.maxRuntimeSeconds', 60, 3600, (size) => automation({ maxRuntimeSeconds: size })],
  [
    'configuration.triggers.0.channelIds',
    1,
    50,
    (size) => automation({ triggers: slackWith({ channelIds: list((n) => `C${n}`)(size) }) }),
  ],
  [
    'configuration.triggers.0.projectIds',
    1,
    100,
    (size) => automation({ triggers: sentryWith({ projectIds: list((n) => `C${n}`)(size) }) }),
  ],
  [
    'configuration.triggers.0.eventTypes',
    1,
    2,
    (size) => automation({ triggers: sentryWith({ eventTypes: ['new_issue', 'regression', 'other'].slice(0, size) }) }),
    'configuration.triggers.0.eventTypes',
  ],
  [
    'configuration.triggers.0.excludedEnvironments',
    0,
    100,
    (size) => automation({ triggers: sentryWith({ excludedEnvironments: list((n) => `e${n}`)(size) }) }),
  ],
  [
    'configuration.triggers.0.excludedEnvironments.0',
    1,
    64,
    (size) => automation({ triggers: sentryWith({ excludedEnvironments: [text(size)] }) }),
  ],
  ['configuration.triggers.0.hour', 0, 23, (size) => automation({ triggers: [schedule(size)] })],
  ['configuration.triggers.0.weekday', 0, 6, (size) => automation({ triggers: [{ ...schedule(), weekday: size }] })],
];

describe('a limit', () => {
  for (const [field, least, most, make] of limits) {
    test(`of ${field} is ${least} to ${most}`, async () => {
      await using at = await api();
      for (const size of new Set([least, Math.min(least + 1, most), most])) {
        expect([
          size,
          (await at.call('POST', '/automations', { ...make(size), ...(field === 'name' ? {} : { name: `n${size}` }) }))
            .status,
        ]).toEqual([size, 201]);
      }
      const isNumber = /max|hour|weekday/.test(field);
      for (const size of [...(least > 0 || isNumber ? [least - 1] : []), most + 1]) {
        const answer = await at.call('POST', '/automations', make(size));
        expect([size, answer.status, answer.body.code]).toEqual([size, 400, 'invalid_request']);
        expect(pathsOf(answer).every((path) => path === field || path.startsWith(`${field}.`))).toBe(true);
        expect(pathsOf(answer)).not.toEqual([]);
      }
    });
  }
});

const bad: [what: string, body: Json, paths: string[]][] = [
  ['no body field at all', {}, ['name', 'configuration']],
  [
    'an empty configuration',
    { name: 'x', configuration: {} },
    ['configuration.prompt', 'configuration.repositoryIds', 'configuration.triggers'],
  ],
  ['a blank name', automation({}, { name: ' \n' }), ['name']],
  ['a blank prompt', automation({ prompt: ' \n\t' }), ['configuration.prompt']],
  ['NUL in a prompt', automation({ prompt: 'a\0b' }), ['configuration.prompt']],
  ['half a surrogate pair in a name', automation({}, { name: 'a\ud800' }), ['name']],
  [
    'half a surrogate pair in an environment',
    automation({ triggers: sentryWith({ excludedEnvironments: ['\udfff'] }) }),
    ['configuration.triggers.0.excludedEnvironments.0'],
  ],
  ['null in place of a list', automation({ notifications: null }), ['configuration.notifications']],
  ['text in place of a number', automation({ maxModelRequests: '5' }), ['configuration.maxModelRequests']],
  ['a fraction', automation({ maxRuntimeSeconds: 60.5 }), ['configuration.maxRuntimeSeconds']],
  ['text in place of a switch', automation({}, { enabled: 'true' }), ['enabled']],
  ['a model that starts with a dot', automation({ model: '.x' }), ['configuration.model']],
  ['a model with a space', automation({ model: 'a b' }), ['configuration.model']],
  ['a model with a line end', automation({ model: 'a\nb' }), ['configuration.model']],
  [
    'words that are not in the lists',
    automation({ harness: 'x', modelProvider: 'x', toolPolicy: 'x' }),
    ['configuration.harness', 'configuration.modelProvider', 'configuration.toolPolicy'],
  ],
  [
    'no UUIDs',
    automation({ repositoryIds: ['x'], workspaceSecretIds: [1] }),
    ['configuration.repositoryIds.0', 'configuration.workspaceSecretIds.0'],
  ],
  [
    'an unknown kind of trigger',
    automation({ triggers: [schedule(), { kind: 'fax' }] }),
    ['configuration.triggers.1.kind'],
  ],
  [
    'triggers without their fields',
    automation({ triggers: [{ kind: 'slack' }, { kind: 'sentry' }, { kind: 'discord' }] }),
    [
      'configuration.triggers.0.integrationAccountId',
      'configuration.triggers.0.channelIds',
      'configuration.triggers.0.eventMode',
      'configuration.triggers.1.integrationAccountId',
      'configuration.triggers.1.projectIds',
      'configuration.triggers.1.eventTypes',
      'configuration.triggers.2.integrationAccountId',
      'configuration.triggers.2.channelIds',
    ],
  ],
  [
    'a schedule without its fields',
    automation({ triggers: [{ kind: 'schedule' }] }),
    ['frequency', 'hour', 'weekday', 'timezone'].map((field) => `configuration.triggers.0.${field}`),
  ],
  [
    'a time zone that does not exist',
    automation({ triggers: [{ ...schedule(), timezone: 'Mars/Base' }] }),
    ['configuration.triggers.0.timezone'],
  ],
  [
    'an offset as a time zone',
    automation({ triggers: [{ ...schedule(), timezone: '+01:00' }] }),
    ['configuration.triggers.0.timezone'],
  ],
  [
    'empty ids of channels',
    automation({ triggers: slackWith({ channelIds: ['C1', '', text(256)] }) }),
    ['configuration.triggers.0.channelIds.1', 'configuration.triggers.0.channelIds.2'],
  ],
  [
    'a notification of another kind',
    automation({ notifications: [{ ...notify(), kind: 'mail' }] }),
    ['configuration.notifications.0.kind'],
  ],
  [
    'a notification without a channel',
    automation({ notifications: [{ ...notify(), channelId: '' }] }),
    ['configuration.notifications.0.channelId'],
  ],
  [
    'notifications without a schedule or Sentry trigger',
    automation({ triggers: [onSlack], notifications: [notify()] }),
    ['configuration.notifications'],
  ],
  [
    'the same beside another bad field',
    automation({ prompt: 1, triggers: [onDiscord], notifications: [notify()] }),
    ['configuration.prompt', 'configuration.notifications'],
  ],
  [
    'duplicate identifiers',
    automation({
      repositoryIds: [repository(), repository(1), repository().toUpperCase()],
      contextAccountIds: [account(), account()],
      workspaceSecretIds: [secret(), secret(), secret()],
    }),
    [
      'configuration.repositoryIds.2',
      'configuration.contextAccountIds.1',
      'configuration.workspaceSecretIds.1',
      'configuration.workspaceSecretIds.2',
    ],
  ],
  [
    'duplicates beside a bad item',
    automation({ repositoryIds: [repository(), 7, repository()] }),
    ['configuration.repositoryIds.1', 'configuration.repositoryIds.2'],
  ],
  [
    'duplicate channels, projects, events and environments',
    automation({
      triggers: [
        ...slackWith({ channelIds: ['C1', 'C1'] }),
        ...sentryWith({
          projectIds: ['C1', 'C1'],
          eventTypes: ['regression', 'regression'],
          excludedEnvironments: ['e', 'e'],
        }),
      ],
    }),
    [
      'configuration.triggers.0.channelIds.1',
      'configuration.triggers.1.projectIds.1',
      'configuration.triggers.1.eventTypes.1',
      'configuration.triggers.1.excludedEnvironments.1',
    ],
  ],
  [
    'equal triggers, whatever the order of their channels',
    automation({ triggers: [...slackWith({ channelIds: ['C1', 'C2'] }), ...slackWith({ channelIds: ['C2', 'C1'] })] }),
    ['configuration.triggers.1'],
  ],
  [
    'equal triggers, one with its default',
    automation({ triggers: [onSentry, { ...onSentry, excludedEnvironments: [] }] }),
    ['configuration.triggers.1'],
  ],
  [
    'equal notifications',
    automation({ notifications: [notify(), notify(2), notify()] }),
    ['configuration.notifications.2'],
  ],
];

describe('a body with', () => {
  test.each(bad)('%s is refused, naming each place', async (_, body, paths) => {
    await using at = await api();
    const answer = await at.call('POST', '/automations', body);
    expect(answer).toMatchObject({ status: 400, body: { error: 'Invalid request', code: 'invalid_request' } });
    expect(pathsOf(answer).sort()).toEqual([...paths].sort());
  });
});

const strange: [what: string, configuration: Json, code: string, paths: string[]][] = [
  ['a repository', { repositoryIds: [repository(), unknown] }, 'repository_not_found', ['repositoryIds.1']],
  ['a secret', { workspaceSecretIds: [unknown] }, 'secret_not_found', ['workspaceSecretIds.0']],
  [
    'an account to read from',
    { contextAccountIds: [account(), unknown] },
    'integration_not_found',
    ['contextAccountIds.1'],
  ],
  [
    'a trigger account',
    { triggers: slackWith({ integrationAccountId: unknown }) },
    'integration_not_found',
    ['triggers.0.integrationAccountId'],
  ],
  [
    'an account of the right provider',
    { triggers: slackWith({ integrationAccountId: discord }) },
    'integration_not_found',
    ['triggers.0.integrationAccountId'],
  ],
  [
    'a channel',
    { triggers: [schedule(), ...slackWith({ channelIds: ['C1', 'X'] })] },
    'resource_not_found',
    ['triggers.1.channelIds.1'],
  ],
  ['a project', { triggers: sentryWith({ projectIds: ['X'] }) }, 'resource_not_found', ['triggers.0.projectIds.0']],
  [
    'a notification channel',
    { notifications: [{ ...notify(), channelId: 'X' }] },
    'resource_not_found',
    ['notifications.0.channelId'],
  ],
  [
    'a notification account',
    { notifications: [{ ...notify(), integrationAccountId: sentry }] },
    'integration_not_found',
    ['notifications.0.integrationAccountId'],
  ],
  [
    'a resource and a secret',
    { triggers: sentryWith({ projectIds: ['X'] }), workspaceSecretIds: [unknown] },
    'resource_not_found',
    ['triggers.0.projectIds.0', 'workspaceSecretIds.0'],
  ],
  [
    'a repository, a resource and a secret',
    { repositoryIds: [unknown], triggers: sentryWith({ projectIds: ['X'] }), workspaceSecretIds: [unknown] },
    'repository_not_found',
    ['repositoryIds.0', 'triggers.0.projectIds.0', 'workspaceSecretIds.0'],
  ],
  [
    'anything',
    { repositoryIds: [unknown], contextAccountIds: [unknown], workspaceSecretIds: [unknown] },
    'integration_not_found',
    ['contextAccountIds.0', 'repositoryIds.0', 'workspaceSecretIds.0'],
  ],
];

describe('where the workspace does not have', () => {
  test.each(strange)(
    '%s, creating and changing name each place under the first code',
    async (_, configuration, code, paths) => {
      await using at = await api();
      const expected = { status: 400, body: { error: 'Invalid request', code } };
      const wanted = paths.map((path) => `configuration.${path}`);
      const created = await at.call('POST', '/automations', automation(configuration));
      expect(created).toMatchObject(expected);
      expect(pathsOf(created)).toEqual(wanted);
      const { id } = await at.create();
      const changed = await at.call('PATCH', `/automations/${id}`, { configuration });
      expect(changed).toMatchObject(expected);
      expect(pathsOf(changed)).toEqual(wanted);
    },
  );
});

describe('a name', () => {
  test('that is taken in the workspace answers 409, in another one it does not', async () => {
    await using at = await api();
    await at.create();
    const other = await at.create(automation({}, { name: 'triage' }));
    const taken = { status: 409, body: { code: 'automation_name_taken' } };
    expect(await at.call('POST', '/automations', automation({}, { name: ' Triage ' }))).toMatchObject(taken);
    expect(await at.call('PATCH', `/automations/${other.id}`, { name: 'Triage' })).toMatchObject(taken);
    expect(await at.call('GET', `/automations/${other.id}`)).toMatchObject({
      body: { automation: { name: 'triage' } },
    });
    expect(await at.call('POST', '/automations', automation(), at.workspaces[1])).toMatchObject({ status: 201 });
  });

  test('may be sent again unchanged', async () => {
    await using at = await api();
    const created = await at.create();
    expect(await at.call('PATCH', `/automations/${created.id}`, { name: 'Triage' })).toEqual({
      status: 200,
      body: { automation: created },
    });
  });
});

describe('changing an automation', () => {
  test.each<[string, unknown]>([
    ['no body', undefined],
    ['an empty body', {}],
    ['an empty configuration', { configuration: {} }],
    ['unknown fields', { surplus: 1, configuration: { surplus: 1 } }],
    [
      'what it holds already',
      { name: 'Triage', enabled: true, description: '', configuration: { ...valid, triggers: [schedule()] } },
    ],
  ])('with %s changes nothing and answers 200', async (_, body) => {
    await using at = await api();
    const created = await at.create();
    at.time.now += 1000;
    expect(await at.call('PATCH', `/automations/${created.id}`, body)).toEqual({
      status: 200,
      body: { automation: created },
    });
  });

  test('with what GET answered changes nothing', async () => {
    await using at = await api();
    const created = await at.create(automation({ triggers: [onSentry, schedule()], notifications: [notify()] }));
    at.time.now += 1000;
    expect(await at.call('PATCH', `/automations/${created.id}`, created)).toEqual({
      status: 200,
      body: { automation: created },
    });
  });

  test.each<[string, Json]>([
    ['enabled', { enabled: false }],
    ['name', { name: 'Other' }],
    ['description', { description: 'Other' }],
  ])('in %s alone saves no version', async (_, patch) => {
    await using at = await api();
    const created = await at.create();
    at.time.now += 1000;
    expect((await at.call('PATCH', `/automations/${created.id}`, patch)).body.automation).toEqual({
      ...created,
      ...patch,
      updatedAt: '2026-01-05T12:00:01.000Z',
    });
    expect(await at.database.all('SELECT version FROM automation_versions')).toHaveLength(1);
  });

  test('in the configuration saves a version, keeps what was not sent, and replaces whole lists', async () => {
    await using at = await api();
    const { id } = await at.create(automation({ repositoryIds: [repository(1), repository(2)], maxModelRequests: 7 }));
    const { body } = await at.call('PATCH', `/automations/${id}`, {
      configuration: { repositoryIds: [repository(2)], harness: 'opencode', modelProvider: 'xai' },
    });
    expect(body.automation).toMatchObject({
      version: 2,
      configuration: {
        repositoryIds: [repository(2)],
        harness: 'opencode',
        modelProvider: 'xai',
        maxModelRequests: 7,
        prompt: 'Fix the bug',
      },
    });
    expect((await at.service.configurationOf(id, 1))?.repositoryIds).toEqual([repository(1), repository(2)]);
    expect((await at.service.configurationOf(id, 2))?.repositoryIds).toEqual([repository(2)]);
    expect(await at.service.configurationOf(id, 3)).toBeUndefined();
  });

  test('so that notifications have lost their trigger is refused whole', async () => {
    await using at = await api();
    const created = await at.create(automation({ notifications: [notify()] }));
    const answer = await at.call('PATCH', `/automations/${created.id}`, {
      name: 'Other',
      configuration: { triggers: [onSlack] },
    });
    expect(answer).toMatchObject({ status: 400, body: { code: 'invalid_request' } });
    expect(pathsOf(answer)).toEqual(['configuration.notifications']);
    expect((await at.call('GET', `/automations/${created.id}`)).body.automation).toEqual(created);
  });

  test('many times at once loses no change and no version', async () => {
    await using at = await api();
    const { id } = await at.create();
    const fields = ['maxModelRequests', 'maxOutputTokensPerRequest', 'maxRuntimeSeconds'];
    const sent = many(12, (n) => ({ configuration: { [fields[n % 3] ?? '']: 300 + n } }));
    const answers = await Promise.all(sent.map((patch) => at.call('PATCH', `/automations/${id}`, patch)));
    expect(answers.map(({ body }) => body.automation.version).sort((a, b) => a - b)).toEqual(many(12, (n) => n + 2));
    const { body } = await at.call('GET', `/automations/${id}`);
    expect(body.automation.configuration).toMatchObject({
      maxModelRequests: 309,
      maxOutputTokensPerRequest: 310,
      maxRuntimeSeconds: 311,
    });
    expect(await at.database.all('SELECT version FROM automation_versions')).toHaveLength(13);
  });

  test.each<[string, Json, string[]]>([
    [
      'every bad field',
      { name: '', enabled: 1, configuration: { prompt: '', triggers: [] } },
      ['name', 'enabled', 'configuration.prompt', 'configuration.triggers'],
    ],
    ['null', { configuration: null }, ['configuration']],
  ])('names %s', async (_, body, paths) => {
    await using at = await api();
    const { id } = await at.create();
    expect(pathsOf(await at.call('PATCH', `/automations/${id}`, body))).toEqual(paths);
  });
});

describe('an automation that the workspace does not have', () => {
  test('is 404 to read and to change, one of another workspace too', async () => {
    await using at = await api();
    const { id } = await at.create();
    const absent = { status: 404, body: { code: 'automation_not_found', error: 'Automation not found' } };
    for (const [path, key] of [
      [unknown, at.workspaces[0]],
      [id, at.workspaces[1]],
    ] as const) {
      expect(await at.call('GET', `/automations/${path}`, undefined, key)).toMatchObject(absent);
      expect(await at.call('PATCH', `/automations/${path}`, { name: 'x' }, key)).toMatchObject(absent);
    }
    expect(await at.service.startable(at.workspaces[1], id)).toBeUndefined();
    expect(await at.service.startable(at.workspaces[0], id)).toEqual({ name: 'Triage', enabled: true, version: 1 });
    expect((await at.call('GET', '/automations', undefined, at.workspaces[1])).body).toEqual({ automations: [] });
  });

  test('by an id that is none is 400, beside what is wrong in the body', async () => {
    await using at = await api();
    const answer = await at.call('PATCH', '/automations/nope', { name: 1 });
    expect(answer.status).toBe(400);
    expect(pathsOf(answer)).toEqual(['automationId', 'name']);
  });

  test('is found by its id in upper case', async () => {
    await using at = await api();
    const { id } = await at.create();
    expect(await at.call('GET', `/automations/${id.toUpperCase()}`)).toMatchObject({ status: 200 });
  });
});

describe('the list', () => {
  test('has the documented fields, the newest run and the next slot, most recently changed first', async () => {
    await using at = await api();
    const first = await at.create(automation({ triggers: [onSlack, schedule(9), schedule(15)] }, { name: 'First' }));
    at.time.now += 1000;
    await at.create(automation({}, { name: 'Second', enabled: false }));
    at.time.now += 1000;
    await at.create(automation({ triggers: [onDiscord] }, { name: 'Third' }));
    at.time.now += 1000;
    await at.call('PATCH', `/automations/${first.id}`, { description: 'Changed' });
    const runs = [newId(), newId()];
    await at.database.write(async (tx) => {
      for (const [position, run] of runs.entries()) {
        await tx.run(
          `INSERT INTO runs (id, workspace_id, automation_id, automation_version, number, status, turn,
             trigger_provider, trigger_title, trigger_attributes, queued_at, created_at)
           VALUES (?, ?, ?, 1, ?, 'succeeded', 1, 'manual', 't', '{}', 0, ?)`,
          run,
          at.workspaces[0],
          first.id,
          position + 1,
          position * 1000,
        );
      }
      await tx.run('UPDATE automations SET run_count = 2 WHERE id = ?', first.id);
    });
    const { body } = await at.call('GET', '/automations');
    expect(body.automations.map(({ name }: { name: string }) => name)).toEqual(['First', 'Third', 'Second']);
    expect(body.automations[0]).toEqual({
      id: first.id,
      name: 'First',
      description: 'Changed',
      enabled: true,
      version: 1,
      createdAt: '2026-01-05T12:00:00.000Z',
      updatedAt: '2026-01-05T12:00:03.000Z',
      harness: 'codex',
      model: 'gpt-5.4',
      modelProvider: 'openai',
      triggers: [onSlack, schedule(9), schedule(15)],
      lastRun: { id: runs[1], status: 'succeeded', createdAt: '1970-01-01T00:00:01.000Z' },
      nextRunAt: '2026-01-05T14:00:00.000Z',
    });
    expect(body.automations[1]).toMatchObject({ lastRun: null, nextRunAt: null });
    expect(body.automations[2]).toMatchObject({ enabled: false, nextRunAt: null });
  });
});
