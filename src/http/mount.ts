import type { Log } from '../kernel/log.ts';
import { readBytes, readJson } from './body.ts';
import { failureResponse, json } from './failure.ts';
import { type Authenticate, bearerOf, requestIdOf, searchOf } from './gate.ts';
import { relay } from './live.ts';
import type { AnyOperation, Call, Operation, StreamOperation } from './operation.ts';
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
  return ({ request, params }) =>
    answering(op.id, request, edge, async (headers, requestId) => {
      const principal = await edge.authenticate(bearerOf(request));
      const body = 'body' in op && op.body ? await readJson(request, bodyIsOptional) : undefined;
      const parsed = parseCall(op, { params, search: searchOf(request.url), body });
      // Getters, because making a signal or a header object costs, and few operations look at them.
      const call = {
        ...parsed,
        principal,
        get signal() {
          return request.signal;
        },
        get headers() {
          return request.headers;
        },
      } as AnyCall;
      return 'open' in op ? stream(op, request, call, headers, requestId, edge) : answer(op, call, headers);
    });
}

/** The answer goes through its schema: a field that is not documented stays inside, a wrong one is a 500. */
async function answer(op: Operation, call: AnyCall, headers: Record<string, string>): Promise<Response> {
  const result = op.output.parse(await op.run(call as never));
  return json(op.status, result, headers);
}

async function stream(
  op: StreamOperation,
  request: Request,
  call: AnyCall,
  headers: Record<string, string>,
  requestId: string,
  edge: Edge,
): Promise<Response> {
  const live = op.contentType === 'text/event-stream';
  const signal = live ? AbortSignal.any([request.signal, edge.stopping]) : request.signal;
  const source = await op.open({ ...call, headers: request.headers, signal } as never);
  const streamHeaders = { ...headers, 'content-type': op.contentType, 'x-accel-buffering': 'no' };
  if (request.method === 'HEAD') {
    await source.cancel();
    return new Response(null, { headers: streamHeaders });
  }
  edge.keepOpen(request);
  const onError = (error: unknown) => edge.log.error('A stream broke off', error, { requestId, operation: op.id });
  return new Response(relay(source, { mustBeWhole: !live, onError }), { headers: streamHeaders });
}

/** A page as a handler. Its body is read here, so that no page can forget the limit. */
export function mountPage(page: Page, edge: Edge): Handler {
  return ({ request }) =>
    answering(page.path, request, edge, async (_, requestId) => {
      const { method, url, headers, signal } = request;
      const body = page.method === 'POST' ? await readBytes(request) : undefined;
      const response = await page.handle(body ? new Request(url, { method, headers, body, signal }) : request);
      const answered = new Headers(response.headers);
      answered.set('x-request-id', requestId);
      return new Response(response.body, { status: response.status, headers: answered });
    });
}

/** Runs `work` with the headers of its answer, and turns whatever it throws into an answer. */
export async function answering(
  what: string,
  request: Request,
  edge: Edge,
  work: (headers: Record<string, string>, requestId: string) => Promise<Response>,
): Promise<Response> {
  const requestId = requestIdOf(request);
  const headers = { 'x-request-id': requestId, 'cache-control': 'no-store' };
  try {
    return await work(headers, requestId);
  } catch (error) {
    return failureResponse(error, headers, { requestId, what }, edge.log);
  }
}
