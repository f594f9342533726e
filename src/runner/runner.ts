import { leaseMs, renewEveryMs } from '../runs/queue.ts';
import type { TurnControl } from './agent.ts';
import { type Claim, executeTurn } from './execute.ts';
import { Detached, LeaseLost } from './failure.ts';
import type { TurnNeeds } from './turn.ts';

export interface RunnerNeeds extends TurnNeeds {
  /** Names this installation in leases. One process at a time works under it, so its old leases are free at start. */
  readonly owner: string;
  readonly maxConcurrentRuns: number;
}

/** Claims runs and works on as many at once as it may. */
export interface Runner {
  /** Takes back what an earlier process of the server left, then claims whatever waits. */
  start(): Promise<void>;
  /** Looks for work and for cancels now. Resolves when every free place is taken or nothing waits. */
  tick(): Promise<void>;
  /** Resolves when no run is being worked on. */
  idle(): Promise<void>;
  /** Lets go of every run without ending one: sandboxes go on and are adopted by the next process. */
  stop(): Promise<void>;
}

interface Holding {
  readonly claim: Claim;
  readonly cancel: AbortController;
  readonly letGo: AbortController;
  readonly done: Promise<void>;
}

export function createRunner(needs: RunnerNeeds): Runner {
  const { queue, live, clock, log } = needs;
  const held = new Map<string, Holding>();
  let ticking: Promise<void> | null = null;
  let again = false;
  let stopped = false;
  let timer: ReturnType<typeof setInterval> | undefined;
  let unsubscribe = () => {};

  function hold(claim: Claim): void {
    const { id } = claim.run;
    // The run is here still: its last turn is being cleaned up, or this process has slept over the end of its lease.
    const earlier = held.get(id);
    earlier?.letGo.abort(new LeaseLost(`run ${id} was claimed anew`));
    const cancel = new AbortController();
    const letGo = new AbortController();
    if (claim.run.cancelRequested) cancel.abort();
    const control: TurnControl = { cancelled: cancel.signal, letGo: letGo.signal };
    const begun = earlier
      ? earlier.done.then(() => executeTurn(needs, claim, control))
      : executeTurn(needs, claim, control);
    const done = begun
      .catch((error) => log.error('a turn was left to be rescued', error, { run: id }))
      .finally(() => {
        if (held.get(id)?.claim === claim) held.delete(id);
        live.announceWork();
      });
    held.set(id, { claim, cancel, letGo, done });
  }

  /** Prolongs every lease and hears of cancels that another process wrote. */
  async function renewAll(): Promise<void> {
    await Promise.all(
      [...held.values()].map(async ({ claim, cancel, letGo }) => {
        const run = await queue.renew(claim.run.id, claim.run.leaseToken, clock() + leaseMs);
        if (!run) letGo.abort(new LeaseLost(`run ${claim.run.id} is held by another runner`));
        if (run?.cancelRequested) cancel.abort();
      }),
    );
  }

  async function noticeCancels(): Promise<void> {
    for (const id of await queue.cancelRequested([...held.keys()])) held.get(id)?.cancel.abort();
  }

  async function claimAll(): Promise<void> {
    while (!stopped && held.size < needs.maxConcurrentRuns) {
      const at = clock();
      const claim = await queue.claim(needs.owner, at, at + leaseMs);
      if (!claim) return;
      live.announceEvents(claim.run.id);
      hold(claim);
    }
  }

  async function rounds(): Promise<void> {
    do {
      again = false;
      await noticeCancels();
      await claimAll();
    } while (again && !stopped);
  }

  function tick(): Promise<void> {
    again = true;
    ticking ??= rounds()
      .catch((error) => log.error('the queue could not be read', error))
      .finally(() => {
        ticking = null;
        // A call that came after the last round began the next one.
        if (again && !stopped) void tick();
      });
    return ticking;
  }

  return {
    async start() {
      const taken = await queue.releaseLeases(needs.owner);
      if (taken > 0) log.info('taking back runs of the last process', { runs: taken });
      unsubscribe = live.onWork(() => void tick());
      timer = setInterval(() => {
        void renewAll()
          .catch((error) => log.error('leases could not be renewed', error))
          .then(tick);
      }, renewEveryMs);
      await tick();
    },
    tick,
    async idle() {
      while (held.size > 0) await Promise.all([...held.values()].map(({ done }) => done));
    },
    async stop() {
      stopped = true;
      clearInterval(timer);
      unsubscribe();
      await ticking;
      for (const { letGo } of held.values()) letGo.abort(new Detached('the server stops'));
      await this.idle();
      await queue.releaseLeases(needs.owner);
    },
  };
}
