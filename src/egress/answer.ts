import type { Clock } from '../kernel/clock.ts';
import type { Authority as CertificateAuthority } from './authority.ts';
import type { Carried, Passage } from './carried.ts';
import type { EgressRequest } from './egress.ts';
import { BadMessage, type RequestHead, requestFraming } from './http1.ts';
import type { Pool } from './pool.ts';
import { Refusal, refusalAnswer } from './refusal.ts';
import type { Access } from './rules.ts';
import type { Wire } from './wire.ts';

/** What the connections of one run share. */
export interface Surroundings {
  readonly access: Access;
  readonly certificates: CertificateAuthority;
  readonly pool: Pool;
  readonly clock: Clock;
  /** The largest head of a request that is read. */
  readonly headBytes: number;
  /** How long a client may take until a request's head is there, idle time between requests included. */
  readonly headTimeoutMs: number;
  /** What the connections have carried, to be ended when it is withdrawn. */
  readonly carried: Carried;
  passageTo(host: string, secure: boolean): Passage;
  /** Throws `Refusal` for a host that a policy of the run does not let be reached. */
  refuseDenied(host: string): void;
  /** Ends the wire with the run, and at its deadline. */
  watch(wire: Wire): void;
  report(request: EgressRequest): void | Promise<void>;
}

/** How much, and how long, a refused client may go on sending before it is cut off without having read why. */
const lingerBytes = 1024 * 1024;
const lingerMs = 2_000;

/** What the ledger calls a request. */
export type Entry = Pick<EgressRequest, 'host' | 'port' | 'method' | 'path'>;

/** Whether bytes that follow the head could belong to it: only then the connection cannot go on. */
export function mayHaveBody(head: RequestHead): boolean {
  try {
    return requestFraming(head).kind !== 'none';
  } catch {
    return true;
  }
}

/** Records a refusal and answers with it; tells whether the connection can go on. */
export async function refuse(
  client: Wire,
  refusal: Refusal,
  entry: Entry,
  shared: Surroundings,
  ends: boolean,
  bodyless = false,
): Promise<boolean> {
  await shared.report({
    ...entry,
    at: shared.clock(),
    status: refusal.status,
    bytesUp: 0,
    bytesDown: 0,
    durationMs: 0,
    secrets: [],
    decision: 'denied',
    reason: refusal.message,
  });
  return answerRefusal(client, refusal, shared, ends, bodyless);
}

/** As `refuse`, for a refusal that stands in the ledger already. */
export async function answerRefusal(
  client: Wire,
  refusal: Refusal,
  shared: Surroundings,
  ends: boolean,
  bodyless: boolean,
): Promise<boolean> {
  client.write(refusalAnswer(refusal, ends, bodyless));
  if (ends) await linger(client, shared);
  return !ends;
}

/** Reads on for a moment: a connection closed over unread bytes takes the answer with it before it was read. */
async function linger(client: Wire, shared: Surroundings): Promise<void> {
  client.deadlineAt = shared.clock() + lingerMs;
  let left = lingerBytes;
  while (left > 0) {
    const piece = client.take();
    if (piece !== undefined) left -= piece.length;
    else if (!(await client.more())) break;
  }
  client.end();
}

export const malformed = (why: string) => new Refusal('bad_request', `The request is malformed: ${why}.`);

/** Anything but a refusal or a malformed message is a bug: it is passed on. */
export function asRefusal(error: unknown): Refusal {
  if (error instanceof Refusal) return error;
  if (error instanceof BadMessage) return malformed(error.message);
  throw error;
}
