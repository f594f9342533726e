import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import { newId } from '../../src/kernel/id.ts';
import { type TestService, testService } from '../support/service.ts';

let service: TestService;
let other: { workspaceId: string; key: string };
/** An automation with a run that has finished, one that is working, and one that waits behind it. */
let automationId: string;
let finished: string;
let working: string;
let waiting: string;

beforeAll(async () => {
  service = await testService({ env: { SLIPWAY_MAX_CONCURRENT_RUNS: '1' } });
  other = await service.otherWorkspace();
  automationId = await service.automation();
  finished = (await service.played([{ do: 'message', text: 'Done.' }], automationId)).id;
  working = await service.start([{ do: 'wait' }], automationId);
  await service.event(working, 'sandbox_ready');
  waiting = await service.start([], automationId);
});
afterAll(() => service[Symbol.asyncDispose]());

const uuid = expect.stringMatching(/^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
const time = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
const unknown = newId();

type Route = readonly [method: string, path: (id: string) => string, body?: unknown];
const runRoutes: Record<string, Route> = {
  get: ['GET', (id) => `/runs/${id}`],
  events: ['GET', (id) => `/runs/${id}/events`],
  stream: ['GET', (id) => `/runs/${id}/stream`],
  egress: ['GET', (id) => `/runs/${id}/egress`],
  raw: ['GET', (id) => `/runs/${id}/turns/1/raw`],
  messages: ['POST', (id) => `/runs/${id}/messages`, { message: 'Go on.' }],
  cancel: ['POST', (id) => `/runs/${id}/cancel`],
};
const automationRoutes: Record<string, Route> = {
  start: ['POST', (id) => `/automations/${id}/runs`, {}],
  list: ['GET', (id) => `/automations/${id}/runs`],
};
const routes = Object.entries({ ...runRoutes, ...automationRoutes });
const idOf = (name: string) => (name in runRoutes ? finished : automationId);

describe('every endpoint of runs', () => {
  test.each(routes)('%s asks for a key before anything else', async (_, [method, path]) => {
    const answer = await service.call(method, path('not-a-uuid'), undefined, { key: null });
    expect(answer).toMatchObject({ status: 401, body: { code: 'unauthorized', error: expect.any(String) } });
    expect(answer.headers.get('www-authenticate')).toStartWith('Bearer');
  });

  test.each(routes)('%s names the parameter that is no UUID', async (name, [method, path, body]) => {
    const { status, body: answer } = await service.call(method, path('not-a-uuid'), body);
    expect({ status, answer }).toMatchObject({
      status: 400,
      answer: { code: 'invalid_request', error: 'Invalid request' },
    });
    expect(answer.issues).toEqual([
      { message: expect.any(String), path: [name in runRoutes ? 'runId' : 'automationId'] },
    ]);
  });

  test.each(routes)("%s answers for another workspace's id exactly as for an unknown one", async (name, route) => {
    const [method, path, body] = route;
    const foreign = await service.call(method, path(idOf(name)), body, { key: other.key });
    const absent = await service.call(method, path(unknown), body, { key: other.key });
    expect(foreign.status).toBe(404);
    expect(foreign.body.code).toBe(name in runRoutes ? 'run_not_found' : 'automation_not_found');
    expect(foreign.body).toEqual(absent.body);
  });

  test.each(routes.filter(([, [method]]) => method === 'GET'))(
    '%s takes an id in capital letters',
    async (name, route) => {
      const [method, path] = route;
      if (name === 'stream') return;
      expect((await service.call(method, path(idOf(name).toUpperCase()))).status).toBe(200);
    },
  );
});

describe('starting a run', () => {
  const start = (body?: unknown, id = automationId) => service.call('POST', `/automations/${id}/runs`, body);

  test('answers 202 with its id, and with nothing else', async () => {
    const own = await service.automation();
    for (const body of [undefined, {}, { message: 'Hello' }, { message: 'Hello', unknown: 1 }]) {
      expect(await start(body, own)).toMatchObject({ status: 202, body: { runId: uuid, duplicate: false } });
      expect(Object.keys((await start(body, own)).body)).toEqual(['runId', 'duplicate']);
    }
  });

  const accepted = {
    'one character': 'x',
    '20000 units': 'x'.repeat(20_000),
    '20000 units in pairs': '😀'.repeat(10_000),
  };
  test.each(Object.entries(accepted))('takes a message of %s, and keeps it as it was sent', async (_, message) => {
    const { status, body } = await start({ message });
    expect(status).toBe(202);
    const { events } = await service.run(body.runId);
    expect(events[1]).toMatchObject({ type: 'user_message', data: { text: message } });
  });

  test('keeps white space around a message', async () => {
    const { body } = await start({ message: '  a\n ' });
    expect((await service.run(body.runId)).events[1]?.data).toEqual({ text: '  a\n ' });
  });

  const refused: [string, unknown][] = [
    ['empty', ''],
    ['blank', ' \n\t '],
    ['of 20001 units', 'x'.repeat(20_001)],
    ['of 20001 units in pairs', `${'😀'.repeat(10_000)}x`],
    ['with NUL', 'a\0b'],
    ['with half a pair', '\ud83d'],
    ['that is a number', 5],
    ['that is null', null],
    ['that is a list', ['x']],
  ];
  test.each(refused)('refuses a message %s', async (_, message) => {
    const { status, body } = await start({ message });
    expect({ status, code: body.code }).toEqual({ status: 400, code: 'invalid_request' });
    expect(body.issues).toEqual([{ message: expect.any(String), path: ['message'] }]);
    const follow = await service.call('POST', `/runs/${finished}/messages`, { message });
    expect(follow).toMatchObject({ status: 400, body: { issues: [{ path: ['message'] }] } });
  });

  test('of an automation that is turned off is a conflict', async () => {
    const own = await service.automation();
    await service.call('PATCH', `/automations/${own}`, { enabled: false });
    expect(await start({}, own)).toMatchObject({ status: 409, body: { code: 'automation_disabled' } });
    expect((await service.call('GET', `/automations/${own}/runs`)).body.total).toBe(0);
  });

  const titles: [string, string | undefined, string][] = [
    ['no message', undefined, 'Manual run'],
    ['one line', 'Fix the bug', 'Fix the bug'],
    ['the first of several', 'First\nSecond', 'First'],
    ['Windows line ends', 'First\r\nSecond', 'First'],
    ['exactly 80', 'x'.repeat(80), 'x'.repeat(80)],
    ['81, cut', 'x'.repeat(81), 'x'.repeat(80)],
    ['a pair at the cut, which is not halved', `${'x'.repeat(79)}😀`, 'x'.repeat(79)],
  ];
  test.each(titles)('takes the title from the message: %s', async (_, message, title) => {
    const { body } = await start(message === undefined ? undefined : { message });
    const run = await service.run(body.runId);
    expect(run.trigger).toEqual({ provider: 'manual', sourceUrl: null, title, attributes: {} });
  });
});

describe('reading a run', () => {
  test('shows every field, and no other', async () => {
    expect((await service.call('GET', `/runs/${finished}`)).body).toEqual({
      run: {
        id: finished,
        number: 1,
        status: 'succeeded',
        createdAt: time,
        startedAt: time,
        completedAt: time,
        resultSummary: 'Done.',
        failureCategory: null,
        failureMessage: null,
        inferenceUsage: null,
        trigger: { provider: 'manual', sourceUrl: null, title: expect.any(String), attributes: {} },
        automationId,
        automationName: expect.stringMatching(/^Automation /),
        automationVersion: 1,
        turn: 1,
        phase: null,
        cancelRequestedAt: null,
        events: expect.any(Array),
      },
    });
  });

  test('shows what is not known yet as null', async () => {
    expect(await service.run(waiting)).toMatchObject({
      status: 'pending',
      phase: 'queued',
      startedAt: null,
      completedAt: null,
      resultSummary: null,
      inferenceUsage: null,
    });
    expect(await service.run(working)).toMatchObject({ status: 'running', phase: 'agent', completedAt: null });
  });

  test('shows what the model used once there was a request', async () => {
    await using own = await testService();
    const { inferenceUsage } = await own.played([{ do: 'model', prompt: 'x' }]);
    expect(inferenceUsage).toEqual({
      requests: 1,
      inputTokens: expect.any(Number),
      outputTokens: expect.any(Number),
      costMicros: expect.any(Number),
    });
  });
});

describe('listing runs', () => {
  const list = (query: string, id = automationId) => service.call('GET', `/automations/${id}/runs${query}`);

  test('shows the fields of the list, and no other', async () => {
    const { status, body } = await list('?pageSize=50');
    expect(status).toBe(200);
    expect(Object.keys(body)).toEqual(['page', 'pageSize', 'total', 'runs']);
    expect(body.runs.at(-1)).toEqual({
      id: finished,
      number: 1,
      status: 'succeeded',
      createdAt: time,
      startedAt: time,
      completedAt: time,
      resultSummary: 'Done.',
      failureCategory: null,
      failureMessage: null,
      inferenceUsage: null,
      trigger: { provider: 'manual', sourceUrl: null, title: expect.any(String) },
    });
  });

  test('goes from the newest to the oldest, page by page, without a gap', async () => {
    const own = await service.automation();
    for (let n = 0; n < 5; n++) await service.call('POST', `/automations/${own}/runs`);
    const pages = await Promise.all([1, 2, 3, 4].map((page) => list(`?page=${page}&pageSize=2`, own)));
    expect(pages.map(({ body }) => [body.page, body.pageSize, body.total])).toEqual([1, 2, 3, 4].map((n) => [n, 2, 5]));
    expect(pages.map(({ body }) => body.runs.map(({ number }: { number: number }) => number))).toEqual([
      [5, 4],
      [3, 2],
      [1],
      [],
    ]);
  });

  test('is empty for an automation without runs', async () => {
    const { body } = await list('', await service.automation());
    expect(body).toEqual({ page: 1, pageSize: 10, total: 0, runs: [] });
  });

  test.each(['?page=1&pageSize=1', '?page=10000', '?pageSize=50'])('takes %s', async (query) => {
    expect((await list(query)).status).toBe(200);
  });

  const wrong: [string, string[]][] = [
    ['?page=0', ['page']],
    ['?page=10001', ['page']],
    ['?page=-1', ['page']],
    ['?page=1.5', ['page']],
    ['?page=', ['page']],
    ['?page=x', ['page']],
    ['?page=1e2', ['page']],
    ['?page=99999999999999999999', ['page']],
    ['?pageSize=0', ['pageSize']],
    ['?pageSize=51', ['pageSize']],
    ['?page=0&pageSize=51', ['page', 'pageSize']],
  ];
  test.each(wrong)('refuses %s and names the field', async (query, fields) => {
    for (const path of [`/automations/${automationId}/runs`, `/runs/${finished}/egress`]) {
      const { status, body } = await service.call('GET', `${path}${query}`);
      expect(status).toBe(400);
      expect(body.issues.map((issue: { path: string[] }) => issue.path)).toEqual(fields.map((field) => [field]));
    }
  });
});

describe('events after one', () => {
  const after = (n: unknown) => service.call('GET', `/runs/${finished}/events${n === undefined ? '' : `?after=${n}`}`);

  test('are all of them from 0, and none behind the last', async () => {
    const { events } = await service.run(finished);
    const last = events.length;
    expect((await after(undefined)).body).toEqual({ events, last });
    expect((await after(0)).body).toEqual({ events, last });
    expect((await after(last - 1)).body).toEqual({ events: events.slice(-1), last });
    expect((await after(last)).body).toEqual({ events: [], last });
    expect((await after(999_999_999)).body).toEqual({ events: [], last: 999_999_999 });
  });

  test.each([-1, 'x', 1_000_000_000, '', '1.0'])('are refused after %p', async (n) => {
    for (const route of ['events', 'stream']) {
      const answer = await service.call('GET', `/runs/${finished}/${route}?after=${n}`);
      expect(answer).toMatchObject({ status: 400, body: { issues: [{ path: ['after'] }] } });
    }
  });
});

describe('the raw output of a turn', () => {
  const raw = (turn: unknown, id = finished) => service.call('GET', `/runs/${id}/turns/${turn}/raw`);

  test('comes as lines of JSON', async () => {
    const answer = await raw(1);
    expect(answer).toMatchObject({ status: 200, body: expect.stringContaining('{"type":"message","text":"Done."}\n') });
    expect(answer.headers.get('content-type')).toStartWith('application/x-ndjson');
  });

  test('is 404 for a turn that is not there or has printed nothing', async () => {
    expect(await raw(2)).toMatchObject({ status: 404, body: { code: 'not_found' } });
    expect(await raw(1, waiting)).toMatchObject({ status: 404, body: { code: 'not_found' } });
  });

  test.each(['0', 'x', '-1', '1.5', '..%2f..'])('is refused for the turn %s', async (turn) => {
    expect(await raw(turn)).toMatchObject({ status: 400, body: { issues: [{ path: ['turn'] }] } });
  });
});

describe('a message to a run', () => {
  const send = (id: string, body: unknown = { message: 'Go on.' }) =>
    service.call('POST', `/runs/${id}/messages`, body);

  test('is refused while the run is active', async () => {
    for (const id of [working, waiting]) {
      expect(await send(id)).toMatchObject({ status: 409, body: { code: 'run_active' } });
    }
  });

  test('is refused without a message', async () => {
    expect(await send(finished, {})).toMatchObject({ status: 400, body: { issues: [{ path: ['message'] }] } });
    expect((await service.call('POST', `/runs/${finished}/messages`)).status).toBe(415);
  });

  test('is refused while the automation is turned off', async () => {
    await using own = await testService();
    const automation = await own.automation();
    const { id } = await own.played([], automation);
    await own.call('PATCH', `/automations/${automation}`, { enabled: false });
    expect(await own.message(id, [])).toMatchObject({ status: 409, body: { code: 'automation_disabled' } });
    await own.call('PATCH', `/automations/${automation}`, { enabled: true });
    const answers = await Promise.all([own.message(id, []), own.message(id, [])]);
    expect(answers.map(({ status }) => status).toSorted()).toEqual([202, 409]);
    expect(answers.find(({ status }) => status === 202)?.body).toEqual({ queued: true });
    expect(await own.finished(id)).toMatchObject({ status: 'succeeded', turn: 2 });
  });
});

describe('cancelling', () => {
  test('a finished run is a conflict', async () => {
    expect(await service.cancel(finished)).toMatchObject({ status: 409, body: { code: 'run_not_active' } });
  });

  test('an active one answers that it was asked', async () => {
    const id = await service.start([], automationId);
    const answer = await service.cancel(id);
    expect({ status: answer.status, body: answer.body }).toEqual({ status: 200, body: { cancelRequested: true } });
    expect(await service.run(id)).toMatchObject({ status: 'cancelled', phase: null, cancelRequestedAt: time });
  });
});

describe('outbound requests', () => {
  test('are a page of the ledger, refused ones included', async () => {
    await using own = await testService();
    const id = await own.start([{ do: 'request', url: 'http://127.0.0.1:9/secret?x=1' }, { do: 'wait' }]);
    await own.event(id, 'egress_denied');
    await own.cancel(id);
    const run = await own.finished(id);
    const { status, body } = await own.call('GET', `/runs/${run.id}/egress`);
    expect({ status, body }).toEqual({
      status: 200,
      body: {
        page: 1,
        pageSize: 10,
        total: 1,
        requests: [
          {
            id: expect.any(String),
            turn: 1,
            at: time,
            host: '127.0.0.1',
            port: 9,
            method: 'GET',
            path: '/secret?x=1',
            status: 403,
            bytesUp: 0,
            bytesDown: expect.any(Number),
            durationMs: expect.any(Number),
            secrets: [],
            decision: 'denied',
            reason: expect.any(String),
          },
        ],
      },
    });
    expect(run.events.filter(({ type }) => type === 'egress_denied')).toMatchObject([
      { data: { host: '127.0.0.1', port: 9, method: 'GET' } },
    ]);
  });

  test('are none for a run that made none', async () => {
    const { body } = await service.call('GET', `/runs/${finished}/egress?page=2&pageSize=5`);
    expect(body).toEqual({ page: 2, pageSize: 5, total: 0, requests: [] });
  });
});
