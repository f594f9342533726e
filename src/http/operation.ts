import type { ZodType, z } from 'zod';

/** Who is asking, after the gate has checked the bearer token. */
export interface Principal {
  readonly tokenId: string;
  readonly workspaceId: string;
  readonly memberId: string;
  readonly userId: string;
  readonly role: 'owner' | 'admin' | 'member';
}

type Part = ZodType | undefined;
type Parsed<P extends Part> = P extends ZodType ? z.output<P> : undefined;

/** What an operation is called with: its parts as their schemas read them, and who calls. */
export interface Call<P extends Part, Q extends Part, B extends Part> {
  readonly params: Parsed<P>;
  readonly query: Parsed<Q>;
  readonly body: Parsed<B>;
  readonly principal: Principal;
  /** Aborted when the caller hangs up. */
  readonly signal: AbortSignal;
  readonly headers: Headers;
}

/**
 * One thing a caller can do. REST routes, the OpenAPI document and the MCP tools are all derived from the list of
 * operations, so they cannot disagree.
 */
export interface Operation<
  P extends Part = Part,
  Q extends Part = Part,
  B extends Part = Part,
  O extends ZodType = ZodType,
> {
  /** snake_case; it is the OpenAPI operationId and the MCP tool's name. */
  readonly id: string;
  readonly summary: string;
  readonly method: 'GET' | 'POST' | 'PATCH' | 'DELETE';
  /** Below `/api/v1`, parameters as `:name`. */
  readonly path: `/${string}`;
  readonly status: 200 | 201 | 202;
  readonly params?: P;
  readonly query?: Q;
  readonly body?: B;
  /** What is answered; fields beyond it never leave the server. */
  readonly output: O;
  run(call: Call<P, Q, B>): Promise<z.input<O>>;
}

/** An operation whose answer is a stream (server-sent events, a download) and not one JSON object. */
export interface StreamOperation<P extends Part = Part, Q extends Part = Part> {
  readonly id: string;
  readonly summary: string;
  readonly method: 'GET';
  readonly path: `/${string}`;
  readonly params?: P;
  readonly query?: Q;
  readonly contentType: 'text/event-stream' | 'application/x-ndjson';
  open(call: Call<P, Q, undefined>): Promise<ReadableStream<Uint8Array>>;
}

// biome-ignore lint/suspicious/noExplicitAny: a list of operations is heterogeneous by nature.
export type AnyOperation = Operation<any, any, any, any> | StreamOperation<any, any>;

/** Types an operation from its own schemas. */
export const operation = <
  P extends Part = undefined,
  Q extends Part = undefined,
  B extends Part = undefined,
  O extends ZodType = ZodType,
>(
  definition: Operation<P, Q, B, O>,
): Operation<P, Q, B, O> => definition;

/** As `operation`, for an answer that streams. */
export const streamOperation = <P extends Part = undefined, Q extends Part = undefined>(
  definition: StreamOperation<P, Q>,
): StreamOperation<P, Q> => definition;
