import { heapStats } from 'bun:jsc';
import { describe, expect, test } from 'bun:test';
import { chmod, mkdtemp, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { connectProxy } from '../support/connect-proxy.ts';
import {
  completed,
  event,
  eventStream,
  openTestGateway,
  realKey,
  startUpstream,
  writtenStream,
} from '../support/gateway.ts';

const ask = { model: 'the-harness-wants-this', input: 'hello', stream: true, store: false };

describe('what leaves', () => {
  test('goes through the proxy of the server, which is given its own credentials and not the key for itself', async () => {
    await using upstream = startUpstream(() => eventStream(completed));
    const authorization = `Basic ${Buffer.from('me:x@y').toString('base64')}`;
    await using proxy = await connectProxy({
      portOf: (target) => (target === 'model.test:80' ? Number(new URL(upstream.url).port) : undefined),
      authorization,
    });
    const asked: string[] = [];
    await using gateway = await openTestGateway('http://model.test/v1', {
      proxyFor(url) {
        asked.push(url);
        return proxy.url.replace('://', '://me:x%40y@');
      },
    });
    const answer = await gateway.post(ask);
    expect(await answer.text()).toContain('response.completed');
    expect(asked).toEqual(['http://model.test/v1/responses']);
    expect(proxy.asked).toEqual(['POST http://model.test/v1/responses']);
    expect(proxy.credentials).toEqual([authorization]);
    expect(upstream.seen[0]?.headers.get('authorization')).toBe(`Bearer ${realKey}`);
  });

  test('carries the real key, the run’s model, its cap and its cache key, and nothing of the sandbox’s own', async () => {
    await using upstream = startUpstream(() => eventStream(completed));
    await using gateway = await openTestGateway(upstream.url);
    const answer = await gateway.post(
      { ...ask, prompt_cache_key: 'session', client_metadata: { installation_id: 'x' }, user: 'me' },
      {
        headers: {
          authorization: 'Bearer from-the-sandbox',
          'x-secret': 'mine',
          cookie: 'a=b',
          'user-agent': 'codex',
          'openai-beta': 'b',
          'openai-organization': 'o',
        },
      },
    );
    await answer.text();
    const [seen] = upstream.seen;
    expect(seen?.path).toBe('/v1/responses');
    expect(seen?.body).toEqual({
      model: 'gpt-5.4',
      input: 'hello',
      stream: true,
      store: false,
      max_output_tokens: 1000,
      prompt_cache_key: 'keyed-hash',
    });
    expect(seen?.headers.get('authorization')).toBe(`Bearer ${realKey}`);
    expect([...(seen?.headers.keys() ?? [])].sort()).toEqual([
      'accept',
      'accept-encoding',
      'authorization',
      'connection',
      'content-length',
      'content-type',
      'host',
      'openai-beta',
      'user-agent',
    ]);
  });

  test('a path without the version is the same place', async () => {
    await using upstream = startUpstream(() => eventStream(completed));
    await using gateway = await openTestGateway(upstream.url.replace('/v1', ''));
    expect((await gateway.post(ask, { path: '/responses' })).status).toBe(200);
    expect(upstream.seen[0]?.path).toBe('/v1/responses');
  });

  test('is nothing for requests that are refused here', async () => {
    await using upstream = startUpstream(() => eventStream(completed));
    await using gateway = await openTestGateway(upstream.url);
    const compressed = { 'content-type': 'application/json', 'content-encoding': 'zstd' };
    const answers = await Promise.all([
      gateway.post('{"model":'),
      gateway.post('[]'),
      gateway.post({ ...ask, background: true }),
      gateway.post({ ...ask, tools: [{ type: 'mcp', server_url: 'https://elsewhere.example' }] }),
      gateway.post('x', { headers: compressed }),
      gateway.post(`"${'x'.repeat(32 * 1024 * 1024)}"`),
      gateway.post(ask, { path: '/v1/chat/completions' }),
      gateway.post(ask, { path: '/v1/responses/resp_1' }),
    ]);
    expect(answers.map((answer) => answer.status)).toEqual([400, 400, 400, 400, 400, 413, 404, 404]);
    for (const answer of answers) {
      const { error } = (await answer.json()) as { error: Record<string, unknown> };
      expect(Object.keys(error).sort()).toEqual(['code', 'message', 'param', 'type']);
    }
    expect(upstream.seen).toEqual([]);
    expect(gateway.settlements).toEqual([]);
  });

  test.each([null, ''])('is nothing with %p as key, and the harness is told in its own protocol', async (key) => {
    await using upstream = startUpstream(() => eventStream(completed));
    await using gateway = await openTestGateway(upstream.url, { apiKey: async () => key });
    const answer = await gateway.post(ask);
    expect(answer.status).toBe(401);
    expect(answer.headers.get('x-should-retry')).toBe('false');
    expect(await answer.json()).toMatchObject({ error: { code: 'invalid_api_key' } });
    expect(upstream.seen).toEqual([]);
    expect(gateway.session.record()).toEqual({
      requests: 0,
      succeeded: 0,
      lastFailure: 'authentication',
      lastStatus: null,
      requestLimitHit: false,
    });
  });

  test('is nothing for a provider whose protocol is not spoken', async () => {
    await using upstream = startUpstream(() => eventStream(completed));
    await using gateway = await openTestGateway(upstream.url, { provider: 'anthropic' });
    const answer = await gateway.post(ask);
    expect(answer.status).toBe(400);
    expect(await answer.json()).toMatchObject({ error: { code: 'unsupported_provider' } });
    expect(gateway.session.record()).toMatchObject({ requests: 0, lastFailure: 'unavailable' });
    expect(upstream.seen).toEqual([]);
  });
});

test('100 requests in parallel under a limit of 10 make 10 requests, and the limit is told once', async () => {
  await using upstream = startUpstream(() => eventStream(completed));
  await using gateway = await openTestGateway(upstream.url, { limit: 10 });
  const answers = await Promise.all(Array.from({ length: 100 }, () => gateway.post(ask)));
  const refused = answers.filter((answer) => answer.status === 400);
  await Promise.all(answers.filter((answer) => answer.status === 200).map((answer) => answer.text()));
  expect(refused).toHaveLength(90);
  expect(refused[0]?.headers.get('x-should-retry')).toBe('false');
  expect(await refused[0]?.json()).toMatchObject({ error: { code: 'max_model_requests' } });
  expect(upstream.seen).toHaveLength(10);
  expect(gateway.limitsHit).toEqual(['model_requests']);
  await gateway.settled(10);
  expect(new Set(gateway.settlements.map(({ id }) => id)).size).toBe(10);
  expect(gateway.session.record()).toMatchObject({ requests: 10, succeeded: 10, requestLimitHit: true });
});

describe('a stream', () => {
  test('passes event by event: the first arrives before the provider has sent the second', async () => {
    const source = writtenStream();
    await using upstream = startUpstream(() => eventStream(source.readable));
    await using gateway = await openTestGateway(upstream.url);
    const answering = gateway.post(ask);
    const first = event('response.created');
    void source.write(first);
    const answer = await answering;
    expect(answer.headers.get('content-type')).toBe('text/event-stream');
    const reader = (answer.body as ReadableStream<Uint8Array>).getReader();
    expect(new TextDecoder().decode((await reader.read()).value)).toBe(first);
    void source.write(completed);
    expect(new TextDecoder().decode((await reader.read()).value)).toBe(completed);
    await source.end();
    expect((await reader.read()).done).toBe(true);
  });

  test('is counted at its last event, though the client hangs up at once and the provider never ends it', async () => {
    const source = writtenStream();
    await using upstream = startUpstream(() => eventStream(source.readable));
    await using gateway = await openTestGateway(upstream.url);
    const gone = new AbortController();
    const answering = gateway.post(ask, { signal: gone.signal });
    void source.write(completed).catch(() => {});
    const reader = ((await answering).body as ReadableStream<Uint8Array>).getReader();
    await reader.read();
    gone.abort();
    await gateway.settled(1);
    await gateway.close();
    expect(gateway.settlements).toEqual([
      {
        id: 'request-1',
        outcome: {
          reachedProvider: true,
          upstreamStatus: 200,
          failure: null,
          inputTokens: 100,
          cachedInputTokens: 40,
          cacheWriteTokens: 0,
          outputTokens: 10,
          // 60 at 2.5, 40 at 0.25 and 10 at 15 dollars a million.
          costMicros: 310,
          durationMs: expect.any(Number),
        },
      },
    ]);
  });

  test('that the client leaves in the middle is aborted at the provider and settled as aborted', async () => {
    const source = writtenStream();
    const left = Promise.withResolvers<void>();
    await using upstream = startUpstream((request) => {
      request.signal.addEventListener('abort', () => left.resolve());
      return eventStream(source.readable);
    });
    await using gateway = await openTestGateway(upstream.url);
    const gone = new AbortController();
    const answering = gateway.post(ask, { signal: gone.signal });
    void source.write(event('response.created')).catch(() => {});
    await ((await answering).body as ReadableStream<Uint8Array>).getReader().read();
    gone.abort();
    await left.promise;
    await gateway.settled(1);
    expect(gateway.settlements[0]?.outcome).toMatchObject({
      failure: 'aborted',
      reachedProvider: true,
      upstreamStatus: 200,
    });
  });

  test('that the client leaves before the provider has said anything is aborted there too', async () => {
    const asked = Promise.withResolvers<void>();
    const left = Promise.withResolvers<void>();
    await using upstream = startUpstream((request) => {
      request.signal.addEventListener('abort', () => left.resolve());
      asked.resolve();
      return new Promise(() => {});
    });
    await using gateway = await openTestGateway(upstream.url);
    const gone = new AbortController();
    const answering = gateway.post(ask, { signal: gone.signal });
    await asked.promise;
    gone.abort();
    await expect(answering).rejects.toThrow();
    await left.promise;
    await gateway.settled(1);
    expect(gateway.settlements).toMatchObject([
      { outcome: { failure: 'aborted', reachedProvider: true, upstreamStatus: null } },
    ]);
  });

  test('never shows the key, not even where the provider echoes it in the middle of its answer', async () => {
    const echo = event('response.output_text.delta', { delta: `you sent ${realKey}` });
    const half = Math.floor(echo.length / 2);
    const source = writtenStream();
    await using upstream = startUpstream(() => eventStream(source.readable));
    await using gateway = await openTestGateway(upstream.url);
    const answering = gateway.post(ask);
    void source
      .write(echo.slice(0, half))
      .then(() => source.write(echo.slice(half)))
      .then(() => source.write(completed))
      .then(() => source.end());
    const text = await (await answering).text();
    expect(text).toContain('you sent [key]');
    expect(text).not.toContain('0123456789');
  });
});

test('a session keeps nothing of the requests that it has carried', async () => {
  await using upstream = startUpstream(() => eventStream(completed));
  await using gateway = await openTestGateway(upstream.url);
  const kept = () => {
    Bun.gc(true);
    const { Request: requests = 0, AbortSignal: signals = 0 } = heapStats().objectTypeCounts;
    return requests + signals;
  };
  const before = kept();
  for (let request = 0; request < 50; request += 1) await (await gateway.post(ask)).text();
  await gateway.settled(50);
  expect(kept() - before).toBeLessThan(30);
});

describe('closing the session', () => {
  test('aborts what is under way, waits for its settlement and removes the socket', async () => {
    const source = writtenStream();
    const left = Promise.withResolvers<void>();
    await using upstream = startUpstream((request) => {
      request.signal.addEventListener('abort', () => left.resolve());
      return eventStream(source.readable);
    });
    await using gateway = await openTestGateway(upstream.url);
    const answering = gateway.post(ask);
    void source.write(event('response.created')).catch(() => {});
    await ((await answering).body as ReadableStream<Uint8Array>).getReader().read();
    await gateway.session.close();
    expect(gateway.settlements.map(({ outcome }) => outcome.failure)).toEqual(['aborted']);
    await left.promise;
    await expect(stat(gateway.socketPath)).rejects.toThrow('ENOENT');
    await gateway.session.close();
    expect(gateway.settlements).toHaveLength(1);
  });

  test('waits until the last settlement is written', async () => {
    const writing = Promise.withResolvers<void>();
    const written = Promise.withResolvers<void>();
    const order: string[] = [];
    await using upstream = startUpstream(() => eventStream(completed));
    await using gateway = await openTestGateway(upstream.url, {
      async settle() {
        writing.resolve();
        await written.promise;
        order.push('written');
      },
    });
    const answered = gateway
      .post(ask)
      .then((answer) => answer.text())
      .then(
        () => order.push('answered'),
        () => order.push('cut'),
      );
    await writing.promise;
    const closing = gateway.session.close().then(() => order.push('closed'));
    // Long enough for a whole other session to come and go.
    await (await openTestGateway(upstream.url))[Symbol.asyncDispose]();
    written.resolve();
    await Promise.all([closing, answered]);
    // The last event waits too: what the harness does next, no crash can make us forget what came before.
    expect(order[0]).toBe('written');
    expect(order).toContain('closed');
  });

  test('does not wait for a body that never ends', async () => {
    await using gateway = await openTestGateway('http://127.0.0.1:9');
    const connected = Promise.withResolvers<void>();
    const socket = await Bun.connect({
      unix: gateway.socketPath,
      socket: { data: () => {}, drain: () => {}, open: () => connected.resolve() },
    });
    await connected.promise;
    socket.write('POST /v1/responses HTTP/1.1\r\nHost: g\r\nContent-Length: 1000\r\n\r\n{"model"');
    // Answered after the half request has been read, for both go through one event loop in order.
    await fetch('http://gateway/v1/models', { unix: gateway.socketPath });
    await gateway.session.close();
    socket.end();
    expect(gateway.settlements).toEqual([]);
  });

  test('counts a request that was reserved but had not left as not made', async () => {
    const reserving = Promise.withResolvers<void>();
    const go = Promise.withResolvers<string>();
    await using upstream = startUpstream(() => eventStream(completed));
    await using gateway = await openTestGateway(upstream.url, {
      reserve() {
        reserving.resolve();
        return go.promise;
      },
    });
    const answering = gateway.post(ask).catch(() => null);
    await reserving.promise;
    const closing = gateway.session.close();
    go.resolve('request-1');
    await closing;
    await answering;
    expect(gateway.settlements).toMatchObject([{ outcome: { reachedProvider: false, failure: 'aborted' } }]);
    expect(upstream.seen).toEqual([]);
  });
});

describe('the socket', () => {
  test('replaces the one that an earlier server left, and the sandbox’s user may write to it', async () => {
    const directory = await mkdtemp(path.join(tmpdir(), 'slipway-gw-'));
    const socketPath = path.join(directory, 's.sock');
    const left = Bun.listen({ unix: socketPath, socket: { data() {} } });
    await chmod(socketPath, 0o600);
    await using gateway = await openTestGateway('http://127.0.0.1:9', { socketPath });
    expect((await stat(socketPath)).mode & 0o777).toBe(0o666);
    const answer = await fetch('http://gateway/v1/models', { unix: socketPath });
    expect(await answer.json()).toMatchObject({ data: [{ id: 'gpt-5.4' }] });
    left.stop(true);
    await gateway.close();
    await rm(directory, { recursive: true, force: true });
  });

  test('is refused where its path is too long or holds a file', async () => {
    const directory = await mkdtemp(path.join(tmpdir(), 'slipway-gw-'));
    const file = path.join(directory, 'data.txt');
    await Bun.write(file, 'precious');
    await expect(openTestGateway('http://127.0.0.1:9', { socketPath: file })).rejects.toThrow('not a socket');
    await expect(openTestGateway('http://127.0.0.1:9', { socketPath: `/tmp/${'x'.repeat(120)}` })).rejects.toThrow(
      '125 bytes',
    );
    expect(await Bun.file(file).text()).toBe('precious');
    await rm(directory, { recursive: true, force: true });
  });
});
