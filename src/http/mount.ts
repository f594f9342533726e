import type { Log } from '../kernel/log.ts';
import { readBytes, readJson } from './body.ts';
import { failureResponse, headersOf, json } from './failure.ts';
import { type Authenticate, bearerOf, requestIdOf, searchOf } from './gate.ts';
import { relay } from './live.ts';
import type { AnyOperation, Call, StreamOperation } from './operation.ts';
import { outputFilter } from './output.ts';
import { parseCall } from './parse.ts';

/** What the router found for one request. */
export interface Routed {
  readonly request: Request;
  readonly params: Readonly<Record<string, string | null>>;
}
export type Handler = (routed: Routed) => Promise<Response>;

export interface Edge {
  readonly authenticate: Authenticate;
  readonly log: Log;
  /** Aborted when the server stops: live streams end on it. */
  readonly stopping: AbortSignal;
  /** Keeps the connection of a stream open however long it is silent. */
  keepOpen(request: Request): void;
}

/** A page outside the API: no bearer token, its own body and answer. */
export interface Page {
  readonly method: 'GET' | 'POST';
  /** Below the origin, outside `/api/v1`. */
  readonly path: `/${string}`;
  /** The request's body is in memory already, and at most 4 MiB. */
  handle(request: Request): Promise<Response>;
}

type AnyCall = Call<undefined, undefined, undefined>;

/**
 * An operation as a handler. The order of its answers is the contract's: 401, then the body (415, 413, malformed),
 * then every invalid field at once, then what the operation itself says. What counts or repeats requests (rate
 * limits, idempotency) has its place between the gate and the body.
 */
export function mountOperation(op: AnyOperation, edge: Edge): Handler {
  const bodyIsOptional = 'body' in op && op.body !== undefined && op.body.safeParse(undefined).success;
  // A field that is not documented stays inside; a wrong one is a 500.
  const filter = 'output' in op ? outputFilter(op.output) : undefined;
  return async ({ request, params }) => {
    const requestId = requestIdOf(request);
    try {
      const principal = await edge.authenticate(bearerOf(request));
      const sent = 'body' in op && op.body ? await readJson(request, bodyIsOptional) : undefined;
      const search = op.query ? searchOf(request.url) : '';
      const { params: read, query, body } = parseCall(op, { params, search, body: sent });
      // Getters, because making a signal or a header object costs, and few operations look at them.
      const call = {
        params: read,
        query,
        body,
        principal,
        get signal() {
          return request.signal;
        },
        get headers() {
          return request.headers;
        },
      } as AnyCall;
      if ('open' in op) return await stream(op, request, call, requestId, edge);
      return json(op.status, filter?.(await op.run(call as never)), requestId);
    } catch (error) {
      return failureResponse(error, { requestId, what: op.id }, edge.log);
    }
  };
}

async function stream(
  op: StreamOperation,
  request: Request,
  call: AnyCall,
  requestId: string,
  edge: Edge,
): Promise<Response> {
  const live = op.contentType === 'text/event-stream';
  const ending = live ? firstAborted(request.signal, edge.stopping) : { signal: request.signal, end() {} };
  const headers = { ...headersOf(op.contentType, requestId), 'x-accel-buffering': 'no' };
  try {
    const source = await op.open({ ...call, headers: request.headers, signal: ending.signal } as never);
    if (request.method === 'HEAD') {
      await source.cancel();
      ending.end();
      return new Response(null, { headers });
    }
    edge.keepOpen(request);
    const onError = (error: unknown) => edge.log.error('A stream broke off', error, { requestId, operation: op.id });
    return new Response(relay(source, { mustBeWhole: !live, onError, onEnd: ending.end }), { headers });
  } catch (error) {
    ending.end();
    throw error;
  }
}

/**
 * A signal that is aborted with the first of two, or by `end`, which lets go of both. Not `AbortSignal.any`: what that
 * makes hangs on the signal that lives longer, and with it all that listens to it, until the server stops.
 */
function firstAborted(one: AbortSignal, other: AbortSignal): { signal: AbortSignal; end(): void } {
  const controller = new AbortController();
  const end = () => {
    one.removeEventListener('abort', end);
    other.removeEventListener('abort', end);
    controller.abort();
  };
  one.addEventListener('abort', end);
  other.addEventListener('abort', end);
  if (one.aborted || other.aborted) end();
  return { signal: controller.signal, end };
}

/** A page as a handler. Its body is read here, so that no page can forget the limit. */
export function mountPage(page: Page, edge: Edge): Handler {
  return ({ request }) =>
    answering(page.path, request, edge, async (requestId) => {
      const { method, url, headers, signal } = request;
      const body = page.method === 'POST' ? await readBytes(request) : undefined;
      const response = await page.handle(body ? new Request(url, { method, headers, body, signal }) : request);
      const answered = new Headers(response.headers);
      answered.set('x-request-id', requestId);
      return new Response(response.body, { status: response.status, headers: answered });
    });
}

/** Runs `work` with the id of its request, and turns whatever it throws into an answer. */
export async function answering(
  what: string,
  request: Request,
  edge: Edge,
  work: (requestId: string) => Promise<Response>,
): Promise<Response> {
  const requestId = requestIdOf(request);
  try {
    return await work(requestId);
  } catch (error) {
    return failureResponse(error, { requestId, what }, edge.log);
  }
}
