import { checkBody, checkKey, type Refusal } from './rehearsal-checks.ts';
import { nextReply, type RehearsalFault, type RehearsalScript } from './rehearsal-script.ts';
import { composeResponse, type ResponseEvent, tokensOf } from './rehearsal-stream.ts';

export interface RehearsalOptions {
  /** 0 or absent: any free port. */
  readonly port?: number;
  /** The only key that is accepted. */
  readonly apiKey: string;
  /** The only model that exists; absent: every name does. */
  readonly model?: string;
  readonly script: RehearsalScript;
}

/** What arrived, for tests and the demo to look at. Nothing is written anywhere. */
export interface RecordedRequest {
  /** Counts from 1. */
  readonly number: number;
  readonly method: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  /** The body as it was sent, parsed where it is JSON. */
  readonly body: unknown;
  /** The status of the answer. */
  readonly status: number;
  /** Fulfilled when the other side went away before the answer's end. */
  readonly hungUp: Promise<void>;
}

export interface RehearsalModel {
  /** The base URL with its version, as `OPENAI_BASE_URL` takes it. */
  readonly url: string;
  readonly requests: readonly RecordedRequest[];
  /** Ends every answer under way. */
  stop(): Promise<void>;
}

/** A prompt is cached from this size on, in steps of 128 tokens, as at OpenAI. */
const leastCachedTokens = 1024;
const cacheStepTokens = 128;

/**
 * The rehearsal model: a small server on 127.0.0.1 that speaks OpenAI's Responses API and follows a script instead of
 * thinking. It refuses what OpenAI refuses, so that what works against it has a chance to work there.
 */
export async function startRehearsalModel(options: RehearsalOptions): Promise<RehearsalModel> {
  const requests: RecordedRequest[] = [];
  const promptTokensByCacheKey = new Map<string, number>();
  const stopping = new AbortController();

  const respond = async (request: Request, number: number, text: string): Promise<Response> => {
    const path = new URL(request.url).pathname;
    const refusedKey = checkKey(request.headers.get('authorization'), options.apiKey);
    if (refusedKey !== null) return refuse(refusedKey);
    if (path === '/v1/models' && request.method === 'GET') {
      const data = [{ id: options.model ?? 'rehearsal', object: 'model', created: 0, owned_by: 'slipway' }];
      return Response.json({ object: 'list', data });
    }
    if (path !== '/v1/responses' || request.method !== 'POST') {
      return refuse({ status: 404, message: `Invalid URL (${request.method} ${path})`, param: null, code: null });
    }
    const accepted = checkBody(text, request.headers.get('content-type'), options.model ?? null);
    if ('status' in accepted) return refuse(accepted);

    const scripted = nextReply(options.script, accepted.items, accepted.tools);
    const fault = options.script.fault?.(number) ?? scripted.fault;
    if (fault?.kind === 'status') return refuse(faultRefusal(fault.status), fault.retryAfterSeconds);

    const cacheKey = accepted.cacheKey ?? '';
    const promptTokens = tokensOf(accepted.promptText);
    const known = Math.min(promptTokensByCacheKey.get(cacheKey) ?? 0, promptTokens);
    const cached = known < leastCachedTokens ? 0 : known - (known % cacheStepTokens);
    promptTokensByCacheKey.set(cacheKey, promptTokens);
    const { events, response } = composeResponse(accepted, { ...scripted, fault }, cached, Date.now());
    const headers = {
      'x-request-id': `req_${crypto.randomUUID().replaceAll('-', '')}`,
      'openai-organization': 'rehearsal-org',
    };
    if (!accepted.stream) return Response.json(response, { headers });
    return new Response(eventStream(events, fault, [request.signal, stopping.signal]), {
      headers: { ...headers, 'content-type': 'text/event-stream; charset=utf-8', 'cache-control': 'no-cache' },
    });
  };

  const server = Bun.serve({
    hostname: '127.0.0.1',
    port: options.port ?? 0,
    maxRequestBodySize: 64 * 1024 * 1024,
    // The faults that hang or wait are longer than Bun keeps a quiet connection.
    idleTimeout: 0,
    async fetch(request) {
      const text = await request.text();
      const number = requests.length + 1;
      const hungUp = new Promise<void>((resolve) =>
        request.signal.addEventListener('abort', () => resolve(), { once: true }),
      );
      const record = {
        number,
        method: request.method,
        path: new URL(request.url).pathname,
        headers: Object.fromEntries(request.headers),
        body: parsedOrText(text),
        status: 0,
        hungUp,
      };
      requests.push(record);
      const response = await respond(request, number, text);
      record.status = response.status;
      return response;
    },
  });
  return {
    url: `http://127.0.0.1:${server.port}/v1`,
    requests,
    async stop() {
      stopping.abort();
      await server.stop(true);
    },
  };
}

function eventStream(
  events: readonly ResponseEvent[],
  fault: RehearsalFault | null,
  gone: readonly AbortSignal[],
): ReadableStream<Uint8Array> {
  const encoder = new TextEncoder();
  const encode = (event: ResponseEvent) => encoder.encode(`event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`);
  const middle = Math.ceil(events.length / 2);
  const last = events.length - 1;
  let next = 0;
  return new ReadableStream({
    async pull(controller) {
      if (fault?.kind === 'slow') await Bun.sleep(fault.delayMs);
      if (fault?.kind === 'hang' && next === middle) await aborted(gone);
      const event = events[next];
      if (event === undefined || gone.some((signal) => signal.aborted) || (fault?.kind === 'cut' && next === middle)) {
        controller.close();
        return;
      }
      if (fault?.kind === 'malformed' && (next === middle || next === last)) {
        controller.enqueue(encoder.encode('data: {"type": "response.output_te\n\n'));
        if (next === last) {
          controller.close();
          return;
        }
      }
      controller.enqueue(encode(event));
      next += 1;
    },
  });
}

const aborted = (signals: readonly AbortSignal[]): Promise<void> =>
  new Promise((resolve) => {
    for (const signal of signals) {
      if (signal.aborted) resolve();
      else signal.addEventListener('abort', () => resolve(), { once: true });
    }
  });

function refuse(refusal: Refusal, retryAfterSeconds?: number): Response {
  const { status, message, param, code } = refusal;
  const type = status >= 500 ? 'server_error' : status === 429 ? 'rate_limit_error' : 'invalid_request_error';
  const headers = retryAfterSeconds === undefined ? {} : { 'retry-after': String(retryAfterSeconds) };
  return Response.json({ error: { message, type, param, code } }, { status, headers });
}

function faultRefusal(status: number): Refusal {
  const [message, code] =
    status === 401
      ? ['Incorrect API key provided: sk-rehe************rsal.', 'invalid_api_key']
      : status === 429
        ? ['Rate limit reached for requests in organization org-rehearsal0001.', 'rate_limit_exceeded']
        : ['The rehearsal was told to refuse this request.', status >= 500 ? 'server_error' : 'invalid_value'];
  return { status, message, param: null, code };
}

function parsedOrText(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
