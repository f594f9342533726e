import type { Clock } from '../kernel/clock.ts';
import type { Log } from '../kernel/log.ts';
import type { RunQueue } from '../runs/queue.ts';
import { isActive } from '../runs/state.ts';
import type { Sandbox } from '../sandbox/sandbox.ts';

export interface ReaperNeeds {
  readonly queue: RunQueue;
  readonly sandbox: Sandbox;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * Removes what nobody will ask for again: workspaces that were kept long enough, and what the engine still holds of
 * runs that have ended or that the database does not know. Answers how many runs it removed something of.
 */
export async function reap({ queue, sandbox, clock, log }: ReaperNeeds): Promise<number> {
  let removed = 0;
  for (const runId of await queue.expiredWorkspaces(clock())) {
    // Forgotten first: a follow-up that comes now checks out anew, and a crash in between leaves a leftover.
    if (!(await queue.forgetWorkspace(runId))) continue;
    await sandbox.discard(runId);
    removed += 1;
  }
  for (const { runId, hasContainers } of await sandbox.leftovers()) {
    const run = await queue.workspaceOf(runId);
    if (run && isActive(run.status)) continue;
    if (run?.kept) {
      const container = hasContainers ? await sandbox.adopt(runId, run.turn) : undefined;
      if (!container) continue;
      await container.remove();
    } else {
      await sandbox.discard(runId);
    }
    removed += 1;
  }
  if (removed > 0) log.info('removed old workspaces', { runs: removed });
  return removed;
}
