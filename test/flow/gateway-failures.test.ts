import { describe, expect, test } from 'bun:test';
import type { ModelFailure } from '../../src/gateway/gateway.ts';
import { jsonLog } from '../../src/kernel/log.ts';
import { completed, event, eventStream, openTestGateway, realKey, startUpstream } from '../support/gateway.ts';

const ask = { input: 'hello', stream: true };
const usage = { input_tokens: 100, output_tokens: 10 };
const started = event('response.created');

const refusal =
  (status: number, body: object | string = { error: { message: 'no', type: 't', code: 'c', param: null } }) =>
  () =>
    typeof body === 'string' ? new Response(body, { status }) : Response.json(body, { status });

const endings: [name: string, answer: () => Response, failure: ModelFailure | null, status: number, tokens: number][] =
  [
    ['401', refusal(401), 'authentication', 401, 0],
    ['403', refusal(403), 'authentication', 403, 0],
    ['429', refusal(429), 'rate_limited', 429, 0],
    ['400', refusal(400), 'rejected', 400, 0],
    ['404', refusal(404), 'rejected', 404, 0],
    ['500', refusal(500), 'unavailable', 500, 0],
    ['503 with a page', refusal(503, '<html>relay.internal is down</html>'), 'unavailable', 503, 0],
    ['a redirect', () => Response.redirect('http://127.0.0.1:9/elsewhere', 302), 'unavailable', 502, 0],
    ['a whole stream', () => eventStream(started + completed), null, 200, 110],
    ['a stream cut before its end', () => eventStream(started), 'unavailable', 200, 0],
    ['a stream of nonsense', () => eventStream('data: {"type": "resp\n\n:\n\n'), 'unavailable', 200, 0],
    [
      'the output cap',
      () =>
        eventStream(
          event('response.incomplete', {
            response: { status: 'incomplete', incomplete_details: { reason: 'max_output_tokens' }, usage },
          }),
        ),
      'output_limit',
      200,
      110,
    ],
    [
      'a content filter',
      () =>
        eventStream(
          event('response.incomplete', {
            response: { status: 'incomplete', incomplete_details: { reason: 'content_filter' }, usage },
          }),
        ),
      'rejected',
      200,
      110,
    ],
    [
      'a failed response',
      () =>
        eventStream(
          event('response.failed', { response: { status: 'failed', error: { code: 'server_error', message: 'm' } } }),
        ),
      'unavailable',
      200,
      0,
    ],
    [
      'a rate limit in the stream',
      () =>
        eventStream(
          event('response.failed', {
            response: { status: 'failed', error: { code: 'rate_limit_exceeded', message: 'm' } },
          }),
        ),
      'rate_limited',
      200,
      0,
    ],
    ['an error event', () => eventStream(event('error', { code: 'invalid_prompt', message: 'm' })), 'rejected', 200, 0],
    ['a whole answer', () => Response.json({ status: 'completed', usage }), null, 200, 110],
    [
      'a capped whole answer',
      () => Response.json({ status: 'incomplete', incomplete_details: { reason: 'max_output_tokens' }, usage }),
      'output_limit',
      200,
      110,
    ],
    [
      'an answer that is no JSON',
      () => new Response('{"status":', { headers: { 'content-type': 'application/json' } }),
      'unavailable',
      502,
      0,
    ],
  ];

test.each(endings)('%s is settled once, as what it means', async (_name, answer, failure, status, tokens) => {
  await using upstream = startUpstream(answer);
  await using gateway = await openTestGateway(upstream.url);
  const response = await gateway.post(ask);
  await response.text();
  expect(response.status).toBe(status);
  await gateway.close();
  expect(gateway.settlements).toHaveLength(1);
  const outcome = gateway.settlements[0]?.outcome;
  expect(outcome).toMatchObject({ failure, reachedProvider: true });
  expect((outcome?.inputTokens ?? 0) + (outcome?.outputTokens ?? 0)).toBe(tokens);
  expect(gateway.session.record()).toMatchObject({
    requests: 1,
    succeeded: failure === null ? 1 : 0,
    lastFailure: failure,
  });
});

test('a provider that cannot be reached was not reached, and its address is not told', async () => {
  const gone = startUpstream(() => new Response());
  await gone[Symbol.asyncDispose]();
  await using gateway = await openTestGateway(gone.url);
  const answer = await gateway.post(ask);
  expect(answer.status).toBe(502);
  expect(await answer.text()).not.toContain('127.0.0.1');
  await gateway.settled(1);
  expect(gateway.settlements).toMatchObject([
    { outcome: { failure: 'unavailable', reachedProvider: false, upstreamStatus: null, costMicros: 0 } },
  ]);
});

test('a connection that breaks after the request may have been read counts as made', async () => {
  const server = Bun.listen({
    hostname: '127.0.0.1',
    port: 0,
    socket: { data: (socket) => void socket.terminate() },
  });
  await using gateway = await openTestGateway(`http://127.0.0.1:${server.port}`);
  expect((await gateway.post(ask)).status).toBe(502);
  await gateway.settled(1);
  server.stop(true);
  expect(gateway.settlements).toMatchObject([{ outcome: { failure: 'unavailable', reachedProvider: true } }]);
});

describe('a refusal', () => {
  const leaky = (status: number, headers: Record<string, string>) => () => {
    const message = `Incorrect API key provided: ${realKey}, sk-proj-****abcd, for org-Abc123456 at 127.0.0.1`;
    return Response.json(
      { error: { message, type: 'invalid_request_error', param: null, code: 'invalid_api_key' }, internal: realKey },
      { status, headers },
    );
  };

  test('is passed on in OpenAI’s form without key, account or address', async () => {
    await using upstream = startUpstream(
      leaky(429, {
        'retry-after': '7',
        'x-request-id': `req-${realKey}`,
        'openai-organization': 'acme',
        'set-cookie': 'a=b',
        server: 's',
      }),
    );
    const lines: string[] = [];
    await using gateway = await openTestGateway(upstream.url, { log: jsonLog((line) => lines.push(line)) });
    const answer = await gateway.post(ask);
    const text = await answer.text();
    expect(JSON.parse(text)).toEqual({
      error: {
        message: 'Incorrect API key provided: [key], [key], for [account] at [model provider]',
        type: 'invalid_request_error',
        param: null,
        code: 'invalid_api_key',
      },
    });
    expect(answer.headers.get('retry-after')).toBe('7');
    expect(answer.headers.get('x-request-id')).toBe('req-[key]');
    for (const name of ['openai-organization', 'set-cookie']) expect(answer.headers.has(name)).toBe(false);
    expect(lines.join('\n')).toContain('rate_limited');
    expect(lines.join('\n')).not.toContain('0123456789');
    expect(lines.join('\n')).not.toContain('127.0.0.1');
  });

  test('inside a stream is scrubbed as well', async () => {
    const message = `Rate limit for org-Abc123456, key sk-proj-abc***xyz, at 127.0.0.1`;
    await using upstream = startUpstream(() =>
      eventStream(
        event('response.failed', { response: { status: 'failed', error: { code: 'rate_limit_exceeded', message } } }),
      ),
    );
    await using gateway = await openTestGateway(upstream.url);
    expect(await (await gateway.post(ask)).text()).toContain(
      'Rate limit for [account], key [key], at [model provider]',
    );
  });

  test('in the form of a page becomes a sentence', async () => {
    await using upstream = startUpstream(refusal(503, '<html>relay.internal is down</html>'));
    await using gateway = await openTestGateway(upstream.url);
    expect(await (await gateway.post(ask)).json()).toMatchObject({
      error: { message: 'The model provider answered with status 503.' },
    });
  });
});

test('the newest request decides the record, whatever order requests end in', async () => {
  const slow = Promise.withResolvers<void>();
  let calls = 0;
  const firstSeen = Promise.withResolvers<void>();
  await using upstream = startUpstream(async () => {
    calls += 1;
    if (calls > 1) return eventStream(completed);
    firstSeen.resolve();
    await slow.promise;
    return refusal(500)();
  });
  await using gateway = await openTestGateway(upstream.url);
  const first = gateway.post(ask);
  await firstSeen.promise;
  await (await gateway.post(ask)).text();
  slow.resolve();
  await (await first).text();
  await gateway.settled(2);
  expect(gateway.session.record()).toEqual({
    requests: 2,
    succeeded: 1,
    lastFailure: null,
    lastStatus: 200,
    requestLimitHit: false,
  });
});

test('a counter that fails refuses the request instead of sending it uncounted', async () => {
  await using upstream = startUpstream(() => eventStream(completed));
  await using gateway = await openTestGateway(upstream.url, { reserve: () => Promise.reject(new Error('disk full')) });
  expect((await gateway.post(ask)).status).toBe(503);
  expect(upstream.seen).toEqual([]);
  expect(gateway.session.record()).toMatchObject({ requests: 0, lastFailure: 'unavailable' });
});
