import type { Dialer } from './dial.ts';
import type { Authority } from './rules.ts';
import type { Wire } from './wire.ts';

/** A connection to an origin, and whether another request has used it before. */
export interface Upstream {
  readonly wire: Wire;
  readonly isReused: boolean;
}

/** The kept-alive connections of one run. Nothing is ever shared between runs. */
export interface Pool {
  take(authority: Authority, secure: boolean, reuse: boolean): Promise<Upstream>;
  /** Gives a connection back that stands between two answers. */
  release(authority: Authority, secure: boolean, wire: Wire): void;
}

/** Shorter than most servers' own patience (Node's is 5 s), so that one rarely closes while it is chosen. */
const idleMs = 4_000;
const maxIdlePerOrigin = 16;

/**
 * `watch` is told of every new connection, so that the door can end it. `admit` throws the `Refusal` of a run that may
 * have no connection at all any more.
 */
export function createPool(
  dialer: Dialer,
  now: () => number,
  signal: AbortSignal,
  watch: (wire: Wire) => void,
  admit: () => void = () => {},
): Pool {
  const idle = new Map<string, Wire[]>();
  const keyOf = ({ host, port }: Authority, secure: boolean) => `${secure ? 'tls' : 'plain'} ${host} ${port}`;
  return {
    async take(authority, secure, reuse) {
      admit();
      const waiting = reuse ? idle.get(keyOf(authority, secure)) : undefined;
      for (let wire = waiting?.pop(); wire !== undefined; wire = waiting?.pop()) {
        if (wire.gone || wire.hasUnread || (wire.deadlineAt ?? 0) <= now()) {
          wire.destroy();
          continue;
        }
        wire.deadlineAt = null;
        wire.onClose = () => {};
        return { wire, isReused: true };
      }
      const wire = await dialer.dial(authority, secure, signal);
      watch(wire);
      return { wire, isReused: false };
    },
    release(authority, secure, wire) {
      const key = keyOf(authority, secure);
      const waiting = idle.get(key) ?? [];
      if (wire.gone || waiting.length >= maxIdlePerOrigin) {
        wire.destroy();
        return;
      }
      wire.deadlineAt = now() + idleMs;
      wire.onClose = () => {
        const position = waiting.indexOf(wire);
        if (position >= 0) waiting.splice(position, 1);
      };
      waiting.push(wire);
      idle.set(key, waiting);
    },
  };
}
