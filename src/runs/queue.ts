import type { Database, Value } from '../db/database.ts';
import { appendEvents, type CheckedOut, type RunRow, runFromRow, type StopReason, type StoredRun } from './row.ts';
import type { NewRunEvent, RunEvent, RunPhase, RunStatus } from './schema.ts';
import type { Ending } from './state.ts';

/** What a lease holder may change besides adding events; each is left as it is when not given. */
export interface Progress {
  readonly phase?: RunPhase;
  readonly linesSeen?: number;
  readonly sessionId?: string;
  /** Null when what was checked out cannot be used. */
  readonly checkouts?: readonly CheckedOut[] | null;
  readonly stopReason?: StopReason;
}

/** A claim lasts this long unless it is renewed. */
export const leaseMs = 60_000;
export const renewEveryMs = 15_000;

/**
 * The runner's side of the runs: a queue whose items are held under a lease. Every claim counts `lease_token` up, and
 * every write names the token it was claimed with, so that a holder that was given up on can change nothing any more.
 */
export function runQueue(database: Database) {
  return {
    /**
     * Takes the oldest run that waits, or one whose lease ran out, for `owner` until `until`. One statement, so that
     * two claimers never get the same run. `rescued` tells that an earlier holder had begun it.
     */
    async claim(owner: string, at: number, until: number): Promise<{ run: StoredRun; rescued: boolean } | undefined> {
      return database.write(async (tx) => {
        const next = await tx.one<{ id: string; status: RunStatus }>(
          `SELECT id, status FROM runs
           WHERE status = 'pending' OR (status = 'running' AND lease_until < ?)
           ORDER BY queued_at, id LIMIT 1 ${database.skipLocked}`,
          at,
        );
        if (!next) return undefined;
        const rescued = next.status === 'running';
        const row = await tx.one<RunRow>(
          rescued
            ? `UPDATE runs SET lease_owner = ?, lease_until = ?, lease_token = lease_token + 1 WHERE id = ? RETURNING *`
            : `UPDATE runs SET lease_owner = ?, lease_until = ?, lease_token = lease_token + 1, status = 'running',
                 phase = 'preparing', attempts = attempts + 1, lines_seen = 0, stop_reason = NULL,
                 started_at = COALESCE(started_at, ?), turn_started_at = ?
               WHERE id = ? RETURNING *`,
          ...(rescued ? [owner, until, next.id] : [owner, until, at, at, next.id]),
        );
        return row && { run: runFromRow(row), rescued };
      });
    },

    /** Prolongs a lease; answers the run, or undefined when another holder has it or it has ended. */
    async renew(id: string, leaseToken: number, until: number): Promise<StoredRun | undefined> {
      const row = await database.write((tx) =>
        tx.one<RunRow>(
          `UPDATE runs SET lease_until = ? WHERE id = ? AND lease_token = ? AND status = 'running' RETURNING *`,
          until,
          id,
          leaseToken,
        ),
      );
      return row && runFromRow(row);
    },

    /** Those of the runs that a cancel was asked for. */
    async cancelRequested(ids: readonly string[]): Promise<string[]> {
      if (ids.length === 0) return [];
      const rows = await database.all<{ id: string }>(
        `SELECT id FROM runs WHERE cancel_requested_at IS NOT NULL AND id IN (${ids.map(() => '?').join(', ')})`,
        ...ids,
      );
      return rows.map((row) => row.id);
    },

    /** Makes the leases of `owner` claimable at once: its earlier process is known to be gone. */
    async releaseLeases(owner: string): Promise<number> {
      return database.write((tx) =>
        tx.run(`UPDATE runs SET lease_until = 0 WHERE status = 'running' AND lease_owner = ?`, owner),
      );
    },

    /** Writes a lease holder's progress and its events in one transaction; false when the lease is lost. */
    async progress(
      id: string,
      leaseToken: number,
      progress: Progress,
      events: readonly NewRunEvent[],
      at: number,
    ): Promise<boolean> {
      const set: string[] = ['lease_token = lease_token'];
      const values: Value[] = [];
      const assign = (column: string, value: Value | undefined) => {
        if (value === undefined) return;
        set.push(`${column} = ?`);
        values.push(value);
      };
      assign('phase', progress.phase);
      assign('lines_seen', progress.linesSeen);
      assign('session_id', progress.sessionId);
      assign('stop_reason', progress.stopReason);
      assign('checkouts', progress.checkouts && JSON.stringify(progress.checkouts));
      return database.write(async (tx) => {
        const row = await tx.one<{ turn: number }>(
          `UPDATE runs SET ${set.join(', ')} WHERE id = ? AND lease_token = ? AND status = 'running' RETURNING turn`,
          ...values,
          id,
          leaseToken,
        );
        if (!row) return false;
        await appendEvents(tx, id, row.turn, events, at);
        return true;
      });
    },

    /** Gives a run that was lost before its agent started back to the queue; false when the lease is lost. */
    async requeue(id: string, leaseToken: number): Promise<boolean> {
      return database.write(async (tx) => {
        const changed = await tx.run(
          `UPDATE runs SET status = 'pending', phase = 'queued', lease_owner = NULL, lease_until = NULL
           WHERE id = ? AND lease_token = ? AND status = 'running'`,
          id,
          leaseToken,
        );
        return changed === 1;
      });
    },

    /**
     * Ends the turn. `decide` gets the run as it is inside the transaction, a cancel that has just arrived included,
     * and answers the ending with the events to add. Undefined when the lease is lost.
     */
    async settle(
      id: string,
      leaseToken: number,
      decide: (run: StoredRun) => { ending: Ending; events: readonly NewRunEvent[] },
      times: { at: number; workspaceExpiresAt: number },
    ): Promise<Ending | undefined> {
      return database.write(async (tx) => {
        const row = await tx.one<RunRow>(
          `SELECT * FROM runs WHERE id = ? AND lease_token = ? AND status = 'running'`,
          id,
          leaseToken,
        );
        if (!row) return undefined;
        const { ending, events } = decide(runFromRow(row));
        await appendEvents(tx, id, row.turn, events, times.at);
        await tx.run(
          `UPDATE runs SET status = ?, phase = NULL, lease_owner = NULL, lease_until = NULL, completed_at = ?,
             result_summary = ?, failure_category = ?, failure_message = ?, workspace_expires_at = ?
           WHERE id = ?`,
          ending.status,
          times.at,
          ending.status === 'succeeded' ? ending.resultSummary : null,
          ending.status === 'failed' ? ending.category : null,
          ending.status === 'failed' ? ending.message : null,
          times.workspaceExpiresAt,
          id,
        );
        return ending;
      });
    },

    /** Whether the turn has an event of the type already: a rescued turn does not add its diff twice. */
    async hasEvent(runId: string, turn: number, type: RunEvent['type']): Promise<boolean> {
      const row = await database.one(
        'SELECT 1 AS found FROM run_events WHERE run_id = ? AND turn = ? AND type = ? LIMIT 1',
        runId,
        turn,
        type,
      );
      return row !== undefined;
    },

    /** What the turn's events of a type hold, oldest first. */
    async eventsOf(runId: string, turn: number, type: RunEvent['type']): Promise<Record<string, unknown>[]> {
      const rows = await database.all<{ data: string }>(
        'SELECT data FROM run_events WHERE run_id = ? AND turn = ? AND type = ? ORDER BY id',
        runId,
        turn,
        type,
      );
      return rows.map((row) => JSON.parse(row.data) as Record<string, unknown>);
    },

    /** The newest event of a type in turns before `turn`. */
    async lastEventBefore(
      runId: string,
      turn: number,
      type: RunEvent['type'],
    ): Promise<Record<string, unknown> | undefined> {
      const row = await database.one<{ data: string }>(
        'SELECT data FROM run_events WHERE run_id = ? AND turn < ? AND type = ? ORDER BY id DESC LIMIT 1',
        runId,
        turn,
        type,
      );
      return row && (JSON.parse(row.data) as Record<string, unknown>);
    },

    /** Finished runs whose workspace is to be removed. */
    async expiredWorkspaces(at: number): Promise<string[]> {
      const rows = await database.all<{ id: string }>(
        `SELECT id FROM runs WHERE workspace_expires_at < ? AND status IN ('succeeded', 'failed', 'cancelled') LIMIT 100`,
        at,
      );
      return rows.map((row) => row.id);
    },

    /** A run's state, and whether its workspace is kept for a follow-up; undefined for an unknown run. */
    async workspaceOf(id: string): Promise<{ status: RunStatus; turn: number; kept: boolean } | undefined> {
      const row = await database.one<{ status: RunStatus; turn: number; workspace_expires_at: number | null }>(
        'SELECT status, turn, workspace_expires_at FROM runs WHERE id = ?',
        id,
      );
      return row && { status: row.status, turn: row.turn, kept: row.workspace_expires_at !== null };
    },

    /** Notes that a finished run has no workspace any more; false when a follow-up has just reopened it. */
    async forgetWorkspace(id: string): Promise<boolean> {
      const changed = await database.write((tx) =>
        tx.run(
          `UPDATE runs SET workspace_expires_at = NULL, checkouts = NULL
           WHERE id = ? AND status IN ('succeeded', 'failed', 'cancelled')`,
          id,
        ),
      );
      return changed === 1;
    },
  };
}
export type RunQueue = ReturnType<typeof runQueue>;
