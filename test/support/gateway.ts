import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { GatewayRun, GatewaySession, ModelProvider, ModelRequestOutcome } from '../../src/gateway/gateway.ts';
import { createGateway } from '../../src/gateway/server.ts';
import type { Log } from '../../src/kernel/log.ts';
import { silentLog } from '../../src/kernel/log.ts';

/** The key that no answer may show. Its form is none that the scrubbing of error texts would catch by itself. */
export const realKey = 'real+key/"of"the\\provider=0123456789';

export interface TestGateway extends AsyncDisposable {
  readonly session: GatewaySession;
  readonly socketPath: string;
  readonly settlements: { readonly id: string; readonly outcome: ModelRequestOutcome }[];
  readonly limitsHit: string[];
  /** Fulfilled when this many requests are settled. */
  settled(count: number): Promise<void>;
  post(body: unknown, init?: RequestInit & { path?: string }): Promise<Response>;
  close(): Promise<void>;
}

/** A gateway in front of `baseUrl` with one open session and a counter in memory. */
export async function openTestGateway(
  baseUrl: string,
  changes: Partial<GatewayRun> & { limit?: number; log?: Log; proxyFor?: (url: string) => string | null } = {},
): Promise<TestGateway> {
  const directory = await mkdtemp(path.join(tmpdir(), 'slipway-gw-'));
  const { limit = 100, log = silentLog, proxyFor, ...run } = changes;
  const socketPath = run.socketPath ?? path.join(directory, 'gateway.sock');
  const settlements: { id: string; outcome: ModelRequestOutcome }[] = [];
  const limitsHit: string[] = [];
  const waiting: { count: number; resolve: () => void }[] = [];
  let reserved = 0;
  const gateway = createGateway({
    baseUrls: { openai: baseUrl } as Record<ModelProvider, string>,
    log,
    ...(proxyFor ? { proxyFor } : {}),
    cacheKey: () => 'keyed-hash',
  });
  const opening = gateway.open({
    runId: 'run-1',
    provider: 'openai',
    model: 'gpt-5.4',
    maxOutputTokensPerRequest: 1000,
    apiKey: async () => realKey,
    async reserve() {
      if (reserved >= limit) return null;
      reserved += 1;
      return `request-${reserved}`;
    },
    async settle(id, outcome) {
      settlements.push({ id, outcome });
      for (const waiter of waiting) if (settlements.length >= waiter.count) waiter.resolve();
    },
    onLimit: (hit) => limitsHit.push(hit),
    ...run,
    socketPath,
  });
  const removeDirectory = () => rm(directory, { recursive: true, force: true });
  const session = await opening.catch(async (error: unknown) => {
    await removeDirectory();
    throw error;
  });
  const close = () => gateway.close();
  return {
    session,
    socketPath,
    settlements,
    limitsHit,
    close,
    settled: (count) =>
      new Promise((resolve) => {
        if (settlements.length >= count) resolve();
        else waiting.push({ count, resolve });
      }),
    post: (body, { path: where = '/v1/responses', ...init } = {}) =>
      fetch(`http://gateway${where}`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', authorization: 'Bearer from-the-sandbox' },
        body: typeof body === 'string' ? body : JSON.stringify(body),
        ...init,
        unix: socketPath,
      }),
    async [Symbol.asyncDispose]() {
      await close();
      await removeDirectory();
    },
  };
}

export interface Upstream extends AsyncDisposable {
  readonly url: string;
  readonly seen: { readonly headers: Headers; readonly body: Record<string, unknown>; readonly path: string }[];
}

/** A provider on the loopback interface that answers as the test says. */
export function startUpstream(answer: (request: Request) => Response | Promise<Response>): Upstream {
  const seen: { headers: Headers; body: Record<string, unknown>; path: string }[] = [];
  const server = Bun.serve({
    hostname: '127.0.0.1',
    port: 0,
    idleTimeout: 0,
    async fetch(request) {
      const { pathname } = new URL(request.url);
      seen.push({ headers: request.headers, body: (await request.json()) as Record<string, unknown>, path: pathname });
      return answer(request);
    },
  });
  return {
    url: `http://127.0.0.1:${server.port}/v1`,
    seen,
    async [Symbol.asyncDispose]() {
      await server.stop(true);
    },
  };
}

/** One event of a Responses stream as it stands on the wire. */
export const event = (type: string, fields: object = {}): string =>
  `event: ${type}\ndata: ${JSON.stringify({ type, ...fields })}\n\n`;

/** The last event of a response that used 100 tokens in, 40 of them cached, and 10 out. */
export const completed = event('response.completed', {
  response: {
    status: 'completed',
    usage: { input_tokens: 100, input_tokens_details: { cached_tokens: 40 }, output_tokens: 10 },
  },
});

export const eventStream = (body: ReadableStream<Uint8Array> | string): Response =>
  new Response(body, { headers: { 'content-type': 'text/event-stream' } });

/** A stream that the test writes to piece by piece. */
export function writtenStream() {
  const { readable, writable } = new TransformStream<Uint8Array, Uint8Array>();
  const writer = writable.getWriter();
  const encoder = new TextEncoder();
  return {
    readable,
    write: (text: string) => writer.write(encoder.encode(text)),
    end: () => writer.close(),
  };
}
