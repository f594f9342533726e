import { Fault } from '../kernel/fault.ts';
import { newId } from '../kernel/id.ts';
import type { Principal } from './operation.ts';

/** Answers who holds a bearer token; throws `Fault('unauthenticated', 'unauthorized', …)` where nobody does. */
export type Authenticate = (bearer: string) => Promise<Principal>;

/** Everything under this prefix asks for a bearer token, whether or not there is something at the path. */
export const apiPrefix = '/api/v1';

export function isGuarded(path: string): boolean {
  return path === apiPrefix || path.startsWith(`${apiPrefix}/`);
}

/** The bearer token of a request. The scheme's word is case-insensitive (RFC 9110, section 11.1). */
export function bearerOf(request: Request): string {
  const token = /^bearer +(\S+) *$/i.exec(request.headers.get('authorization') ?? '')?.[1];
  if (token === undefined) {
    throw new Fault('unauthenticated', 'unauthorized', 'Send an API key as "Authorization: Bearer KEY"');
  }
  return token;
}

/** The caller's own request id where it is harmless, so that both sides' logs can be joined; else a new one. */
export function requestIdOf(request: Request): string {
  const sent = request.headers.get('x-request-id');
  return sent !== null && /^[A-Za-z0-9_-]{1,64}$/.test(sent) ? sent : newId();
}

/** The path of a request's URL as it was sent, still percent-encoded. */
export function pathOf(url: string): string {
  const start = url.indexOf('/', url.indexOf('://') + 3);
  const end = url.indexOf('?', start);
  return end === -1 ? url.slice(start) : url.slice(start, end);
}

/** What follows the question mark of a request's URL, or an empty text. */
export function searchOf(url: string): string {
  const mark = url.indexOf('?');
  return mark === -1 ? '' : url.slice(mark + 1);
}
