import { isIP } from 'node:net';

/** Calls back after a time; answers what cancels it. The seam for tests, which do not wait. */
export type Schedule = (callback: () => void, ms: number) => () => void;

/** One way of getting a connection. */
export interface Attempt<T> {
  /** The connection, fit for use. */
  readonly ready: Promise<T>;
  /** Gives up and closes whatever there is; `ready` rejects then, or is ignored. */
  abandon(): void;
}

/** RFC 8305's recommended delay between the beginnings of two attempts. */
export const staggerMs = 250;

export const timerSchedule: Schedule = (callback, ms) => {
  const timer = setTimeout(callback, ms);
  return () => clearTimeout(timer);
};

/** The two families by turns, IPv6 first, each in the order in which it came. */
export function interleaved(addresses: readonly string[]): string[] {
  const six = addresses.filter((address) => isIP(address) === 6);
  const four = addresses.filter((address) => isIP(address) !== 6);
  const mixed: string[] = [];
  for (let at = 0; at < Math.max(six.length, four.length); at++) {
    mixed.push(...six.slice(at, at + 1), ...four.slice(at, at + 1));
  }
  return mixed;
}

/**
 * Tries one address after the other, the next as soon as one has failed or has taken too long, with those before it
 * still under way. The first that is connected wins and the others are closed. Should the winner fail afterwards, the
 * addresses that are left are tried, unless `isFinal` says that none of them could do better.
 */
export function race<T>(
  addresses: readonly string[],
  begin: (address: string, onConnected: () => void) => Attempt<T>,
  isFinal: (error: unknown) => boolean,
  schedule: Schedule = timerSchedule,
): Promise<T> {
  const { promise, resolve, reject } = Promise.withResolvers<T>();
  const waiting = [...addresses];
  const underWay = new Set<Attempt<T>>();
  let cancelTimer = () => {};
  let winner: Attempt<T> | null = null;
  let failure: unknown = new Error('There is no address to connect to.');

  function next(): void {
    cancelTimer();
    const address = waiting.shift();
    if (address === undefined) {
      if (underWay.size === 0) reject(failure);
      return;
    }
    // An attempt may connect only after it has been begun, so the name is bound by then.
    const attempt: Attempt<T> = begin(address, () => choose(attempt));
    underWay.add(attempt);
    attempt.ready.then(
      (connection) => {
        choose(attempt);
        if (winner === attempt) resolve(connection);
      },
      (error: unknown) => lost(attempt, error),
    );
    cancelTimer = waiting.length > 0 ? schedule(next, staggerMs) : () => {};
  }

  function choose(attempt: Attempt<T>): void {
    if (winner !== null || !underWay.has(attempt)) return;
    winner = attempt;
    cancelTimer();
    for (const other of underWay) {
      if (other === attempt) continue;
      underWay.delete(other);
      other.abandon();
    }
  }

  function lost(attempt: Attempt<T>, error: unknown): void {
    if (!underWay.delete(attempt)) return;
    failure = error;
    if (winner === attempt) winner = null;
    if (isFinal(error)) {
      cancelTimer();
      for (const other of underWay) other.abandon();
      underWay.clear();
      reject(error);
      return;
    }
    next();
  }

  next();
  return promise;
}
