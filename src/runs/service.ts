import { type Clock, iso, isoOrNull } from '../kernel/clock.ts';
import { absent, conflict, Fault } from '../kernel/fault.ts';
import { newId } from '../kernel/id.ts';
import type { Log } from '../kernel/log.ts';
import type { Live } from './live.ts';
import type { StoredRun } from './row.ts';
import type { InferenceUsage, Run, RunEvent, RunSummary } from './schema.ts';
import { isFinished } from './state.ts';
import type { RunStore } from './store.ts';

/** The workspace of a finished run stays this long for follow-ups. */
export const workspaceKeptMs = 24 * 60 * 60 * 1000;

/** Events are read in pieces of this size, so that a long transcript is never one query. */
const eventsPerRead = 1000;

/** What the service asks of other modules. */
export interface RunNeeds {
  readonly store: RunStore;
  readonly live: Live;
  readonly clock: Clock;
  readonly log: Log;
  automation(
    workspaceId: string,
    automationId: string,
  ): Promise<{ name: string; enabled: boolean; version: number } | undefined>;
  usageOf(runIds: readonly string[]): Promise<ReadonlyMap<string, InferenceUsage>>;
}

export function runService({ store, live, clock, log, automation, usageOf }: RunNeeds) {
  const notFound = () => absent('run_not_found', 'Run not found');

  async function find(workspaceId: string, runId: string): Promise<StoredRun> {
    const run = await store.find(workspaceId, runId);
    if (!run) throw notFound();
    return run;
  }

  /** A queue that cannot be written, such as on a full disk, is told as such: trying again later may help. */
  async function queued<T>(write: Promise<T>): Promise<T> {
    try {
      return await write;
    } catch (error) {
      log.error('the queue could not be written', error);
      throw new Fault('unavailable', 'worker_unavailable', 'The run queue cannot be written now. Try again later.', {
        cause: error,
      });
    }
  }

  async function allEvents(runId: string, after = 0): Promise<RunEvent[]> {
    const events: RunEvent[] = [];
    for (;;) {
      const more = await store.events(runId, events.at(-1)?.id ?? after, eventsPerRead);
      events.push(...more);
      if (more.length < eventsPerRead) return events;
    }
  }

  return {
    find,

    /** Puts a run of the automation into the queue and answers its id. `message` starts it as a chat. */
    async start(workspaceId: string, automationId: string, message: string | null): Promise<{ runId: string }> {
      const found = await automation(workspaceId, automationId);
      if (!found) throw absent('automation_not_found', 'Automation not found');
      if (!found.enabled) throw conflict('automation_disabled', 'Turn the automation on to start a run.');
      const runId = newId();
      const inserted = await queued(
        store.insert(
          {
            id: runId,
            workspaceId,
            automationId,
            automationVersion: found.version,
            prompt: message,
            trigger: { provider: 'manual', sourceUrl: null, title: titleOf(message), attributes: {} },
            at: clock(),
          },
          [
            { type: 'run_queued', data: {} },
            ...(message === null ? [] : [{ type: 'user_message', data: { text: message } } as const]),
          ],
        ),
      );
      if (!inserted) throw absent('automation_not_found', 'Automation not found');
      live.announceWork();
      return { runId };
    },

    async list(workspaceId: string, automationId: string, page: number, pageSize: number) {
      if (!(await automation(workspaceId, automationId))) throw absent('automation_not_found', 'Automation not found');
      const { total, runs } = await store.list(automationId, page, pageSize);
      const usage = await usageOf(runs.map((run) => run.id));
      return { page, pageSize, total, runs: runs.map((run) => summary(run, usage.get(run.id))) };
    },

    /** One run with its whole transcript. */
    async get(workspaceId: string, runId: string): Promise<Run> {
      const run = await find(workspaceId, runId);
      const [found, usage, events] = await Promise.all([
        automation(workspaceId, run.automationId),
        usageOf([runId]),
        allEvents(runId),
      ]);
      return {
        ...summary(run, usage.get(runId)),
        automationId: run.automationId,
        automationName: found?.name ?? '',
        automationVersion: run.automationVersion,
        turn: run.turn,
        phase: run.phase,
        cancelRequestedAt: isoOrNull(run.cancelRequestedAt),
        trigger: { ...run.trigger },
        events,
      };
    },

    async events(workspaceId: string, runId: string, after: number): Promise<{ events: RunEvent[]; last: number }> {
      await find(workspaceId, runId);
      const events = await allEvents(runId, after);
      return { events, last: events.at(-1)?.id ?? after };
    },

    /**
     * The run's events after `after`, live, until the run has finished and every event was given. The listener is
     * set before the first read, so nothing falls between reading and waiting.
     */
    async *follow(runId: string, after: number, signal: AbortSignal): AsyncGenerator<RunEvent> {
      let last = after;
      let changed = Promise.withResolvers<void>();
      const stop = live.onEvents(runId, () => changed.resolve());
      const abort = () => changed.resolve();
      signal.addEventListener('abort', abort);
      try {
        while (!signal.aborted) {
          changed = Promise.withResolvers();
          const run = await store.get(runId);
          const events = await allEvents(runId, last);
          for (const event of events) {
            last = event.id;
            yield event;
          }
          if (!run || (isFinished(run.status) && last >= run.lastEventId)) return;
          if (events.length === 0) await changed.promise;
        }
      } finally {
        stop();
        signal.removeEventListener('abort', abort);
      }
    },

    /** Continues a finished run with a message, in its next turn. */
    async message(workspaceId: string, runId: string, text: string): Promise<void> {
      const run = await find(workspaceId, runId);
      if (!isFinished(run.status))
        throw conflict('run_active', 'Wait for this run to finish before sending a follow-up.');
      const found = await automation(workspaceId, run.automationId);
      if (!found?.enabled) throw conflict('automation_disabled', 'Turn the automation on to continue this run.');
      const was = await queued(
        store.reopen(
          workspaceId,
          runId,
          text,
          [
            { type: 'run_queued', data: {} },
            { type: 'user_message', data: { text } },
          ],
          clock(),
        ),
      );
      if (was === undefined) throw notFound();
      if (!isFinished(was)) throw conflict('run_active', 'Wait for this run to finish before sending a follow-up.');
      live.announceEvents(runId);
      live.announceWork();
    },

    /** Asks an active run to stop. A waiting one is cancelled when this resolves. */
    async cancel(workspaceId: string, runId: string): Promise<void> {
      const at = clock();
      const was = await queued(store.requestCancel(workspaceId, runId, at, at + workspaceKeptMs));
      if (was === undefined) throw notFound();
      if (isFinished(was)) throw conflict('run_not_active', 'The run has finished already.');
      live.announceEvents(runId);
      live.announceWork();
    },
  };
}
export type RunService = ReturnType<typeof runService>;

/** The message's first line that is not blank, cut to 80 characters, none of them halved. */
function titleOf(message: string | null): string {
  const line = message?.split('\n').find((text) => text.trim() !== '');
  if (line === undefined) return 'Manual run';
  return line
    .trim()
    .slice(0, 80)
    .replace(/[\ud800-\udbff]$/, '')
    .trimEnd();
}

const summary = (run: StoredRun, usage: InferenceUsage | undefined): RunSummary => ({
  id: run.id,
  number: run.number,
  status: run.status,
  createdAt: iso(run.createdAt),
  startedAt: isoOrNull(run.startedAt),
  completedAt: isoOrNull(run.completedAt),
  resultSummary: run.resultSummary,
  failureCategory: run.failureCategory,
  failureMessage: run.failureMessage,
  inferenceUsage: usage ?? null,
  trigger: { provider: run.trigger.provider, sourceUrl: run.trigger.sourceUrl, title: run.trigger.title },
});
