import type { Clock } from '../kernel/clock.ts';
import { Refusal } from './refusal.ts';
import type { Wire } from './wire.ts';

/** What one run may use of the way out. */
export interface EgressLimits {
  /** Connections at the same time; a further one is answered 503. */
  readonly connections: number;
  /** The largest head of a request; a larger one is answered 431. */
  readonly headBytes: number;
  /** How long a client may take until a request's head is there, idle time between requests included. */
  readonly headTimeoutMs: number;
  /** How long an exchange, a WebSocket or a tunnel may go without a byte either way; 0 for ever. */
  readonly idleMs: number;
  /** Bytes to the origins, and from them, all requests of the run together; 0 for any number. */
  readonly maxBytesUp: number;
  readonly maxBytesDown: number;
  /** How often deadlines, idle connections and bytes are looked at. */
  readonly sweepMs: number;
}

export const usualLimits: EgressLimits = {
  connections: 512,
  headBytes: 65_536,
  headTimeoutMs: 120_000,
  idleMs: 900_000,
  maxBytesUp: 0,
  maxBytesDown: 0,
  sweepMs: 1_000,
};

/** How much longer an idle client's connection is kept than the origin's. */
const clientGraceMs = 5_000;

/** The connections of one run under its limits. One sweep looks after all of them, so that a byte costs nothing. */
export interface Watch {
  client(wire: Wire): void;
  upstream(wire: Wire): void;
  /** Throws `Refusal` once the run has used up its bytes. */
  refuseUsedUp(): void;
  sweep(): void;
  /** Every connection of the run that is open, and some that are closed already. */
  all(): Iterable<Wire>;
  destroyAll(): void;
}

interface Watched {
  readonly isUpstream: boolean;
  countedIn: number;
  countedOut: number;
  activeAt: number;
}

export function watchWires(limits: EgressLimits, clock: Clock): Watch {
  const wires = new Map<Wire, Watched>();
  let bytesUp = 0;
  let bytesDown = 0;
  let usedUp: Refusal | null = null;

  function add(wire: Wire, isUpstream: boolean): void {
    wires.set(wire, { isUpstream, countedIn: 0, countedOut: 0, activeAt: clock() });
  }

  function count(wire: Wire, watched: Watched, now: number): void {
    const { bytesIn, bytesOut } = wire;
    // What waits for a deadline is not idle: it was given that time.
    const isActive = bytesIn !== watched.countedIn || bytesOut !== watched.countedOut || wire.deadlineAt !== null;
    if (isActive) watched.activeAt = now;
    if (watched.isUpstream) {
      bytesDown += bytesIn - watched.countedIn;
      bytesUp += bytesOut - watched.countedOut;
    }
    watched.countedIn = bytesIn;
    watched.countedOut = bytesOut;
  }

  /** The origin's side goes first: so its client can still be told why. */
  function isIdle(wire: Wire, watched: Watched, now: number): boolean {
    if (limits.idleMs === 0 || wire.muted) return false;
    return now - watched.activeAt >= limits.idleMs + (watched.isUpstream ? 0 : clientGraceMs + 2 * limits.sweepMs);
  }

  function look(wire: Wire, watched: Watched, now: number): void {
    count(wire, watched, now);
    if (wire.deadlineAt !== null && wire.deadlineAt <= now) wire.destroy();
    if (isIdle(wire, watched, now)) end(wire, idleRefusal(limits.idleMs));
    if (wire.closed) wires.delete(wire);
  }

  function endUsedUp(): void {
    const isOver = (used: number, most: number) => most > 0 && used >= most;
    if (isOver(bytesUp, limits.maxBytesUp)) usedUp ??= bytesRefusal('sent', 'UP', limits.maxBytesUp);
    if (isOver(bytesDown, limits.maxBytesDown)) usedUp ??= bytesRefusal('received', 'DOWN', limits.maxBytesDown);
    if (usedUp === null) return;
    for (const [wire, { isUpstream }] of wires) if (isUpstream) end(wire, usedUp);
  }

  return {
    client: (wire) => add(wire, false),
    upstream: (wire) => add(wire, true),
    refuseUsedUp() {
      if (limits.maxBytesUp === 0 && limits.maxBytesDown === 0) return;
      // A run near its limit must not slip through between two sweeps, request by request.
      const now = clock();
      for (const [wire, watched] of wires) count(wire, watched, now);
      endUsedUp();
      if (usedUp !== null) throw usedUp;
    },
    sweep() {
      const now = clock();
      for (const [wire, watched] of wires) look(wire, watched, now);
      endUsedUp();
    },
    all: () => wires.keys(),
    destroyAll() {
      for (const wire of wires.keys()) wire.destroy();
      wires.clear();
    },
  };
}

function end(wire: Wire, why: Refusal): void {
  wire.endedFor = why;
  wire.destroy();
}

const idleRefusal = (idleMs: number) =>
  new Refusal('upstream_idle', `No byte passed in either direction for ${Math.round(idleMs / 1000)} s.`);

const bytesRefusal = (verb: string, way: 'UP' | 'DOWN', most: number) =>
  new Refusal(
    'byte_limit',
    `The run has ${verb} as much as one run may (SLIPWAY_EGRESS_MAX_BYTES_${way}: ${most} bytes).`,
  );
