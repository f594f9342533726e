import { describe, expect, test } from 'bun:test';
import { goodKey, marker, rawConnection, type ToyEdge, toyEdge } from '../support/edge.ts';

interface Failure {
  error: string;
  code: string;
  issues?: { message: string; path: string[] }[];
}

interface Scenario {
  readonly name: string;
  readonly method?: string;
  readonly path: string;
  readonly headers?: Record<string, string>;
  readonly body?: string | Uint8Array<ArrayBuffer>;
  /** No key at all, or a wrong one. */
  readonly key?: null | string;
  readonly status: number;
  readonly code?: string;
  readonly paths?: string[][];
}

const json = { 'content-type': 'application/json' };
const created = JSON.stringify({ name: 'n' });
const large = JSON.stringify({ name: 'x'.repeat(5 * 1024 * 1024) });
const deep = `{"name":"n","extra":{"a":${'['.repeat(100_000)}${']'.repeat(100_000)}}}`;

async function run(edge: ToyEdge, scenario: Scenario): Promise<void> {
  const { method = 'GET', path, headers = {}, body, key, status, code, paths } = scenario;
  const init = { method, headers, ...(body !== undefined && { body }), ...(key !== undefined && { key }) };
  const response = await edge.call(path, init);
  const text = await response.text();
  expect(response.status).toBe(status);
  expect(response.headers.get('x-request-id')).toMatch(/^[A-Za-z0-9_-]{1,64}$/);
  if (path.startsWith('/api/v1')) expect(response.headers.get('cache-control')).toBe('no-store');
  expect(text).not.toContain(marker);
  expect(edge.log()).not.toContain(marker);
  if (code === undefined) return;
  const failure = JSON.parse(text) as Failure;
  expect(failure.code).toBe(code);
  expect(failure.error).not.toBe('');
  expect(Object.keys(failure).toSorted()).toEqual(paths ? ['code', 'error', 'issues'] : ['code', 'error']);
  if (paths) expect(failure.issues?.map((issue) => issue.path)).toEqual(paths);
  expect(response.headers.get('www-authenticate')).toBe(status === 401 ? 'Bearer' : null);
}

const post = { method: 'POST', path: '/api/v1/items' } as const;
const invalid = { status: 400, code: 'invalid_request' } as const;

const scenarios: Scenario[] = [
  // Authentication comes first, whatever else is wrong.
  { name: 'no key', path: '/api/v1/items/1', key: null, status: 401, code: 'unauthorized' },
  { name: 'a wrong key', path: '/api/v1/items/1', key: marker, status: 401, code: 'unauthorized' },
  {
    name: 'another scheme',
    path: '/api/v1/items/1',
    key: null,
    headers: { authorization: `Basic ${marker}` },
    status: 401,
    code: 'unauthorized',
  },
  {
    name: 'a bearer without token',
    path: '/api/v1/items/1',
    key: null,
    headers: { authorization: 'Bearer ' },
    status: 401,
    code: 'unauthorized',
  },
  {
    name: 'two tokens',
    path: '/api/v1/items/1',
    key: null,
    headers: { authorization: `Bearer ${goodKey} x` },
    status: 401,
    code: 'unauthorized',
  },
  {
    name: 'a session cookie',
    path: '/api/v1/items/1',
    key: null,
    headers: { cookie: `session=${goodKey}` },
    status: 401,
    code: 'unauthorized',
  },
  { name: 'no key on an unknown path', path: '/api/v1/nothing', key: null, status: 401, code: 'unauthorized' },
  { name: 'no key on the prefix itself', path: '/api/v1', key: null, status: 401, code: 'unauthorized' },
  {
    name: 'no key with a wrong method',
    method: 'DELETE',
    path: '/api/v1/items/1',
    key: null,
    status: 401,
    code: 'unauthorized',
  },
  {
    name: 'no key with a malformed body',
    ...post,
    body: '{',
    headers: json,
    key: null,
    status: 401,
    code: 'unauthorized',
  },
  {
    name: 'no key with a body that is too large',
    ...post,
    body: large,
    headers: json,
    key: null,
    status: 401,
    code: 'unauthorized',
  },
  {
    name: 'the scheme in lower case',
    path: '/api/v1/items/1',
    key: null,
    headers: { authorization: `bearer ${goodKey}` },
    status: 200,
  },
  {
    name: 'the scheme in upper case',
    path: '/api/v1/items/1',
    key: null,
    headers: { authorization: `BEARER  ${goodKey}` },
    status: 200,
  },

  // Then the path and the method.
  { name: 'an unknown path', path: `/api/v1/${marker}`, status: 404, code: 'not_found' },
  {
    name: 'an unknown path outside the API, without a key',
    path: '/nothing',
    key: null,
    status: 404,
    code: 'not_found',
  },
  { name: 'a prefix that only looks like the API', path: '/api/v10/items', key: null, status: 404, code: 'not_found' },
  { name: 'the prefix in another spelling', path: '/%61pi/v1/items/1', key: null, status: 404, code: 'not_found' },
  { name: 'a doubled slash', path: '/api/v1//items/1', status: 404, code: 'not_found' },
  { name: 'a trailing slash', path: '/api/v1/items/1/', status: 404, code: 'not_found' },
  { name: 'an empty parameter', path: '/api/v1/items//start', method: 'POST', status: 404, code: 'not_found' },
  {
    name: 'an unknown path before a wrong body',
    method: 'POST',
    path: '/api/v1/nothing',
    body: '{',
    status: 404,
    code: 'not_found',
  },
  {
    name: 'a wrong method before a wrong body',
    method: 'DELETE',
    path: '/api/v1/items',
    body: '{',
    status: 405,
    code: 'method_not_allowed',
  },
  { name: 'OPTIONS', method: 'OPTIONS', path: '/api/v1/items', status: 405, code: 'method_not_allowed' },

  // Then the form of the body.
  {
    name: 'no content type',
    ...post,
    body: new TextEncoder().encode(created),
    status: 415,
    code: 'unsupported_media_type',
  },
  {
    name: 'text',
    ...post,
    body: created,
    headers: { 'content-type': 'text/plain' },
    status: 415,
    code: 'unsupported_media_type',
  },
  {
    name: 'a relative of JSON',
    ...post,
    body: created,
    headers: { 'content-type': 'application/merge-patch+json' },
    status: 415,
    code: 'unsupported_media_type',
  },
  {
    name: 'a form',
    ...post,
    body: `name=${marker}`,
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
    status: 415,
    code: 'unsupported_media_type',
  },
  {
    name: 'a foreign charset',
    ...post,
    body: created,
    headers: { 'content-type': 'application/json; charset=utf-16' },
    status: 415,
    code: 'unsupported_media_type',
  },
  {
    name: 'gzip',
    ...post,
    body: Bun.gzipSync(created),
    headers: { ...json, 'content-encoding': 'gzip' },
    status: 415,
    code: 'unsupported_media_type',
  },
  {
    name: 'the wrong type before the size',
    ...post,
    body: large,
    headers: { 'content-type': 'text/plain' },
    status: 415,
    code: 'unsupported_media_type',
  },
  { name: 'a body that is too large', ...post, body: large, headers: json, status: 413, code: 'payload_too_large' },
  {
    name: 'the size before the query',
    ...post,
    path: '/api/v1/items?dry=maybe',
    body: large,
    headers: json,
    status: 413,
    code: 'payload_too_large',
  },
  { name: 'malformed JSON', ...post, body: `{"name": "${marker}"`, headers: json, ...invalid, paths: [[]] },
  {
    name: 'malformed JSON before the query',
    ...post,
    path: '/api/v1/items?dry=maybe',
    body: '{',
    headers: json,
    ...invalid,
    paths: [[]],
  },
  { name: 'invalid UTF-8', ...post, body: new Uint8Array([0x22, 0xff, 0x22]), headers: json, ...invalid, paths: [[]] },
  { name: 'no body where one is needed', ...post, headers: json, ...invalid, paths: [[]] },
  { name: 'a list', ...post, body: `["${marker}"]`, headers: json, ...invalid, paths: [[]] },
  { name: 'null', ...post, body: 'null', headers: json, ...invalid, paths: [[]] },
  { name: 'a text', ...post, body: `"${marker}"`, headers: json, ...invalid, paths: [[]] },
  {
    name: 'null for an optional body',
    method: 'POST',
    path: '/api/v1/items/1/start',
    body: 'null',
    headers: json,
    ...invalid,
    paths: [[]],
  },
  {
    name: 'a typed charset',
    ...post,
    body: created,
    headers: { 'content-type': 'Application/JSON; charset="UTF-8"' },
    status: 201,
  },
  {
    name: 'the encoding identity',
    ...post,
    body: created,
    headers: { ...json, 'content-encoding': 'identity' },
    status: 201,
  },
  { name: 'an optional body that is missing', method: 'POST', path: '/api/v1/items/1/start', status: 202 },
  {
    name: 'an optional body that is empty, of another type',
    method: 'POST',
    path: '/api/v1/items/1/start',
    body: '',
    headers: { 'content-type': 'text/plain' },
    status: 202,
  },
  {
    name: 'an optional body of another type',
    method: 'POST',
    path: '/api/v1/items/1/start',
    body: 'x',
    headers: { 'content-type': 'text/plain' },
    status: 415,
    code: 'unsupported_media_type',
  },

  // Then every invalid field at once.
  {
    name: 'path, query and body together',
    method: 'PATCH',
    path: '/api/v1/items/much-too-long?page=x',
    body: `{"name":1,"size":"${marker}"}`,
    headers: json,
    ...invalid,
    paths: [['itemId'], ['page'], ['name'], ['size']],
  },
  {
    name: 'array positions as text',
    ...post,
    body: `{"name":"n","tags":["ok","${marker}-too-long",3]}`,
    headers: json,
    ...invalid,
    paths: [
      ['tags', '1'],
      ['tags', '2'],
    ],
  },
  { name: 'a doubled query parameter', path: `/api/v1/items/1?page=1&page=${marker}`, ...invalid, paths: [['page']] },
  { name: 'a path that is no UTF-8', path: '/api/v1/items/%C3%28', ...invalid, paths: [['itemId']] },
  { name: 'a path with a bare percent sign', path: '/api/v1/items/%ZZ', ...invalid, paths: [['itemId']] },
  { name: 'NUL in the path', path: '/api/v1/items/a%00b', ...invalid, paths: [['itemId']] },
  { name: 'NUL in the query', path: '/api/v1/items/1?page=1%00', ...invalid, paths: [['page']] },
  {
    name: 'NUL in a value',
    ...post,
    body: `{"name":"${marker}\\u0000"}`,
    headers: json,
    ...invalid,
    paths: [['name']],
  },
  {
    name: 'half a surrogate pair',
    ...post,
    body: `{"name":"n","tags":["a","${marker}\\ud83d"]}`,
    headers: json,
    ...invalid,
    paths: [['tags', '1']],
  },
  {
    name: 'half a pair in a free field',
    ...post,
    body: '{"name":"n","extra":{"deep":{"er":["\\udc00"]}}}',
    headers: json,
    ...invalid,
    paths: [['extra', 'deep', 'er', '0']],
  },
  {
    name: 'NUL in a field name',
    ...post,
    body: '{"name":"n","extra":{"a\\u0000":1}}',
    headers: json,
    ...invalid,
    paths: [['extra', 'a\uFFFD']],
  },
  { name: 'a whole pair', ...post, body: '{"name":"\\ud83d\\ude00"}', headers: json, status: 201 },
  {
    name: 'a field named __proto__',
    ...post,
    body: '{"name":"n","__proto__":{"polluted":true},"extra":{"__proto__":{"a":1}}}',
    headers: json,
    status: 201,
  },
  { name: 'an unknown field', ...post, body: `{"name":"n","unknown":"${marker}"}`, headers: json, status: 201 },
  { name: 'an unknown query parameter', path: '/api/v1/items/1?unknown=1', status: 200 },

  // Then what the operation says.
  {
    name: 'validation before the operation',
    ...post,
    body: '{"name":"taken","tags":[1]}',
    headers: json,
    ...invalid,
    paths: [['tags', '0']],
  },
  { name: 'a conflict', ...post, body: '{"name":"taken"}', headers: json, status: 409, code: 'name_taken' },
  { name: 'an absent item', path: '/api/v1/items/none', status: 404, code: 'item_not_found' },
  { name: 'an engine that is away', path: '/api/v1/items/engine', status: 503, code: 'worker_unavailable' },
  { name: 'a bug', path: '/api/v1/items/bug', status: 500, code: 'internal_error' },
  { name: 'a validation error of our own', path: '/api/v1/items/zod', status: 500, code: 'internal_error' },
  { name: 'an answer that breaks its schema', path: '/api/v1/wrong', status: 500, code: 'internal_error' },
];

describe('the edge answers', () => {
  test.each(scenarios.map((scenario) => [scenario.name, scenario] as const))('%s', async (_, scenario) => {
    await using edge = await toyEdge();
    await run(edge, scenario);
  });
});

test('nesting without end is refused, at the place where it becomes too deep', async () => {
  await using edge = await toyEdge();
  const response = await edge.send('/api/v1/items', deep);
  const failure = (await response.json()) as Failure;
  expect(response.status).toBe(400);
  expect(failure.code).toBe('invalid_request');
  for (const issue of failure.issues ?? []) expect(issue.path.length).toBeLessThanOrEqual(64);
});

test('an answer lists at most a hundred issues', async () => {
  await using edge = await toyEdge();
  const response = await edge.send('/api/v1/items', { name: 'n', tags: Array.from({ length: 1000 }, () => 7) });
  expect(((await response.json()) as Failure).issues).toHaveLength(100);
});

test('a bug is logged with its request id, and its detail stays inside', async () => {
  await using edge = await toyEdge();
  const response = await edge.call('/api/v1/items/bug', { headers: { 'x-request-id': 'abc-1' } });
  expect(await response.text()).toBe('{"error":"Internal error","code":"internal_error"}');
  const line = JSON.parse(edge.log()) as Record<string, string>;
  expect(line).toMatchObject({ level: 'error', requestId: 'abc-1', operation: 'get_item' });
  expect(line.error).toContain('internal detail');
});

test('a validation error of our own is logged by its places only', async () => {
  await using edge = await toyEdge();
  await edge.call('/api/v1/wrong');
  const line = JSON.parse(edge.log()) as Record<string, string>;
  expect(line.error).toContain('Data of our own does not fit its schema: size (invalid_type)');
});

test('a request id is taken over when it is harmless, and made otherwise', async () => {
  await using edge = await toyEdge();
  const idFor = async (sent: string) =>
    (await edge.call('/api/v1/items/1', { headers: { 'x-request-id': sent } })).headers.get('x-request-id') ?? '';
  expect(await idFor('Abc_1-x')).toBe('Abc_1-x');
  expect(await idFor('x'.repeat(65))).toMatch(/^[0-9a-f-]{36}$/);
  expect(await idFor('a"b')).toMatch(/^[0-9a-f-]{36}$/);
});

test('405 names the methods that the path has', async () => {
  await using edge = await toyEdge();
  const allow = async (path: string, key: string | null = goodKey) =>
    (await edge.call(path, { method: 'DELETE', key })).headers.get('allow');
  expect(await allow('/api/v1/items/1')).toBe('GET, HEAD, PATCH');
  expect(await allow('/api/v1/items')).toBe('POST');
  expect(await allow('/setup', null)).toBe('GET, HEAD, POST');
});

test('HEAD answers as GET does, without a body', async () => {
  await using edge = await toyEdge();
  const head = await edge.call('/api/v1/items/1', { method: 'HEAD' });
  const get = await edge.call('/api/v1/items/1');
  expect(head.status).toBe(200);
  expect(head.headers.get('content-type')).toBe(get.headers.get('content-type'));
  expect(head.headers.get('content-length')).toBe(String((await get.text()).length));
  expect(await head.text()).toBe('');
  expect((await edge.call('/api/v1/items/none', { method: 'HEAD' })).status).toBe(404);
  expect((await edge.call('/api/v1/items/1', { method: 'HEAD', key: null })).status).toBe(401);
  const stream = await edge.call('/api/v1/stream/flood', { method: 'HEAD' });
  expect([stream.status, stream.headers.get('content-type')]).toEqual([200, 'text/event-stream']);
});

test('an answer holds documented fields only', async () => {
  await using edge = await toyEdge();
  const response = await edge.call('/api/v1/items/1?page=3');
  expect(await response.json()).toEqual({ item: { id: '1', name: 'n' }, page: 3 });
});

test('path parameters are decoded once', async () => {
  await using edge = await toyEdge();
  const idOf = async (sent: string) =>
    ((await (await edge.call(`/api/v1/items/${sent}`)).json()) as { item: { id: string } }).item.id;
  expect(await idOf('a%20b%2Fc')).toBe('a b/c');
  expect(await idOf('%E6%BC%A2')).toBe('漢');
  expect(await idOf('%2541')).toBe('%41');
});

test('a page needs no key, keeps its own headers, and its body is limited too', async () => {
  await using edge = await toyEdge();
  const page = await edge.call('/setup', { key: null });
  expect([page.status, page.headers.get('content-type'), await page.text()]).toEqual([
    200,
    'text/html',
    '<p>set up</p>',
  ]);
  expect(page.headers.get('x-request-id')).not.toBeNull();
  const away = await edge.call('/away', { key: null });
  expect([away.status, away.headers.get('location')]).toEqual([302, 'http://localhost/setup']);
  expect(await (await edge.call('/setup', { key: null, method: 'POST', body: 'abc' })).text()).toBe('3');
  expect((await edge.call('/setup', { key: null, method: 'POST', body: large })).status).toBe(413);
});

test('a chunked body of 5 MiB is refused though it announces no length', async () => {
  await using edge = await toyEdge();
  using connection = rawConnection(edge.listening.port);
  const chunk = 'x'.repeat(65_536);
  connection.socket.write(
    `POST /api/v1/items HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${goodKey}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n`,
  );
  for (let sent = 0; sent < 80; sent++) connection.socket.write(`10000\r\n${chunk}\r\n`);
  const answer = await connection.until('payload_too_large');
  expect(answer).toStartWith('HTTP/1.1 413');
});

test('a body that comes in pieces is waited for, after the key was asked for', async () => {
  await using edge = await toyEdge();
  using connection = rawConnection(edge.listening.port);
  connection.socket.write(
    `POST /api/v1/items HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${goodKey}\r\nContent-Type: application/json\r\nContent-Length: 12\r\n\r\n{"na`,
  );
  await edge.asked;
  connection.socket.write('me":"n"}');
  expect(await connection.until('"name":"n"')).toStartWith('HTTP/1.1 201');
});

test('a caller that leaves in the middle of its body is no bug and stops nothing', async () => {
  await using edge = await toyEdge();
  {
    using connection = rawConnection(edge.listening.port);
    connection.socket.write(
      `POST /api/v1/items HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${goodKey}\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"na`,
    );
    await edge.asked;
  }
  expect((await edge.call('/api/v1/items/1')).status).toBe(200);
  expect(edge.log()).toBe('');
});

test('headers without end and garbage are refused, and the next request is served', async () => {
  await using edge = await toyEdge();
  using huge = rawConnection(edge.listening.port);
  huge.socket.write(`GET /api/v1/items/1 HTTP/1.1\r\nHost: localhost\r\nX-Huge: ${'a'.repeat(200_000)}\r\n\r\n`);
  await huge.closed;
  expect(huge.received()).toMatch(/^(HTTP\/1\.1 431|$)/);
  using garbage = rawConnection(edge.listening.port);
  garbage.socket.write('\x16\x03\x01 this is not HTTP\r\n\r\n');
  await garbage.closed;
  expect(garbage.received()).toMatch(/^(HTTP\/1\.1 400|$)/);
  expect((await edge.call('/api/v1/items/1')).status).toBe(200);
});

test('500 requests at once are each answered with their own item', async () => {
  await using edge = await toyEdge();
  const ids = Array.from({ length: 500 }, (_, index) => `item-${index}`);
  const answers = await Promise.all(
    ids.map(
      async (id) => ((await (await edge.call(`/api/v1/items/${id}`)).json()) as { item: { id: string } }).item.id,
    ),
  );
  expect(answers).toEqual(ids);
});

test('the signal of an operation is aborted when its caller leaves', async () => {
  await using edge = await toyEdge();
  const leaving = new AbortController();
  const call = edge.call('/api/v1/wait', { signal: leaving.signal }).catch(() => undefined);
  await edge.state.waiting.promise;
  leaving.abort();
  await call;
  await edge.state.aborted.promise;
});
