import { ZodError } from 'zod';
import { Fault, type FaultKind } from '../kernel/fault.ts';
import type { Log } from '../kernel/log.ts';

const statusOf: Record<FaultKind, number> = {
  invalid: 400,
  unauthenticated: 401,
  forbidden: 403,
  absent: 404,
  method_not_allowed: 405,
  conflict: 409,
  too_large: 413,
  unsupported_media_type: 415,
  bad_gateway: 502,
  unavailable: 503,
};

/** What a failed request is known by in the log. */
export interface Failed {
  readonly requestId: string;
  /** The operation's id, or what else answered. */
  readonly what: string;
}

/**
 * The answer to whatever was thrown: `{ error, code, issues? }`, with `extra` headers if there are. A `Fault` says what it says; anything else is a bug,
 * goes to the log and reaches the caller as 500 without detail.
 */
export function failureResponse(
  error: unknown,
  failed: Failed,
  log: Log,
  extra: Readonly<Record<string, string>> = {},
): Response {
  if (!(error instanceof Fault)) {
    log.error('A request failed', loggable(error), { requestId: failed.requestId, operation: failed.what });
    return json(500, { error: 'Internal error', code: 'internal_error' }, failed.requestId);
  }
  const status = statusOf[error.kind];
  if (status >= 500) {
    log.warn('A request could not be served', {
      requestId: failed.requestId,
      operation: failed.what,
      code: error.code,
    });
  }
  const challenge = status === 401 ? { 'www-authenticate': 'Bearer' } : undefined;
  const body = { error: error.message, code: error.code, ...(error.issues && { issues: error.issues }) };
  const headers = { ...headersOf('application/json', failed.requestId), ...extra, ...challenge };
  return new Response(JSON.stringify(body), { status, headers });
}

/** The headers that every answer of the API has. */
export const headersOf = (contentType: string, requestId: string) => ({
  'content-type': contentType,
  'x-request-id': requestId,
  'cache-control': 'no-store',
});

/** A JSON answer to the request of that id. */
export function json(status: number, body: unknown, requestId: string): Response {
  return new Response(JSON.stringify(body), { status, headers: headersOf('application/json', requestId) });
}

/** A validation error may hold what was validated: only the places and kinds of its issues are written down. */
function loggable(error: unknown): unknown {
  if (!(error instanceof ZodError)) return error;
  const places = error.issues.map((issue) => `${issue.path.map(String).join('.')} (${issue.code})`);
  return new Error(`Data of our own does not fit its schema: ${places.slice(0, 20).join(', ')}`);
}
