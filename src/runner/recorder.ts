import type { Clock } from '../kernel/clock.ts';
import type { Live } from '../runs/live.ts';
import type { Progress, RunQueue } from '../runs/queue.ts';
import type { NewRunEvent } from '../runs/schema.ts';
import { LeaseLost } from './failure.ts';
import type { RawFile } from './rawfile.ts';
import type { Scrubber } from './scrub.ts';

/** Above this many waiting events whoever produces them has to wait for the disk. */
const mostWaiting = 500;

export interface RecorderNeeds {
  readonly queue: Pick<RunQueue, 'progress'>;
  readonly live: Live;
  readonly clock: Clock;
  readonly run: { readonly id: string; readonly leaseToken: number };
  readonly scrubber: Scrubber;
  /** Called once when the lease turned out to be lost, or the database refused. */
  onBroken(error: unknown): void;
}

/**
 * Writes what a turn produces: events, progress and raw lines, in order. What arrives while one transaction is under
 * way goes into the next one together, so that a talkative agent costs one commit a batch and a quiet one is shown at
 * once. Raw lines reach the file before the events made of them are committed.
 */
export function createRecorder({ queue, live, clock, run, scrubber, onBroken }: RecorderNeeds) {
  let raw: RawFile | null = null;
  let events: NewRunEvent[] = [];
  let lines: string[] = [];
  let progress: Progress = {};
  let waiting = false;
  let writing: Promise<void> | null = null;
  let broken: unknown = null;

  async function write(): Promise<void> {
    while (waiting && broken === null) {
      const batch = { events, lines, progress };
      events = [];
      lines = [];
      progress = {};
      waiting = false;
      try {
        await raw?.append(batch.lines);
        const held = await queue.progress(run.id, run.leaseToken, batch.progress, batch.events, clock());
        if (!held) throw new LeaseLost(`run ${run.id} is held by another runner`);
        if (batch.events.length > 0) live.announceEvents(run.id);
      } catch (error) {
        broken = error;
        onBroken(error);
      }
    }
  }

  function begin() {
    waiting = true;
    writing ??= write().finally(() => {
      writing = null;
      // What was added after the last look at `waiting` starts the next round.
      if (waiting && broken === null) begin();
    });
  }

  async function flush(): Promise<void> {
    while (writing) await writing;
    if (broken !== null) throw broken;
  }

  return {
    /** Raw lines are kept in this file from now on. */
    keepRaw(file: RawFile) {
      raw = file;
    },
    /** Adds events and progress; they are written in the order of the calls. */
    add(more: readonly NewRunEvent[], change: Progress = {}) {
      events.push(...more.map((event) => ({ ...event, data: scrubber.deep(event.data) }) as NewRunEvent));
      progress = { ...progress, ...change };
      begin();
    },
    /** One line of the harness and what it means. Resolves when there is room for more. */
    async line(line: { number: number; text: string }, more: readonly NewRunEvent[], change: Progress = {}) {
      if (line.number > (raw?.lines ?? 0)) lines.push(scrubber.text(line.text));
      this.add(more, { ...change, linesSeen: line.number });
      if (events.length > mostWaiting) await flush();
    },
    /** Resolves when everything that was added is committed; throws what broke it. */
    flush,
    async close() {
      await flush().catch(() => {});
      await raw?.close();
      raw = null;
    },
  };
}
export type Recorder = ReturnType<typeof createRecorder>;
