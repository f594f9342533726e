import type { Database } from '../db/database.ts';
import {
  appendEvents,
  type EventRow,
  eventFromRow,
  type RunRow,
  runFromRow,
  type StoredRun,
  type StoredTrigger,
} from './row.ts';
import type { NewRunEvent, RunEvent, RunStatus } from './schema.ts';

export interface NewRun {
  readonly id: string;
  readonly workspaceId: string;
  readonly automationId: string;
  readonly automationVersion: number;
  readonly prompt: string | null;
  readonly trigger: StoredTrigger;
  readonly at: number;
}

const asked: NewRunEvent = { type: 'cancel_requested', data: {} };

/** What callers do to runs: start, read, cancel, follow up. The runner's side is in `queue.ts`. */
export function runStore(database: Database) {
  return {
    /** Adds a run to the queue with the automation's next number; false when the automation is gone. */
    async insert(run: NewRun, events: readonly NewRunEvent[]): Promise<boolean> {
      return database.write(async (tx) => {
        const automation = await tx.one<{ run_count: number }>(
          'UPDATE automations SET run_count = run_count + 1 WHERE id = ? AND workspace_id = ? RETURNING run_count',
          run.automationId,
          run.workspaceId,
        );
        if (!automation) return false;
        await tx.run(
          `INSERT INTO runs (id, workspace_id, automation_id, automation_version, number, status, phase, turn, prompt,
             trigger_provider, trigger_source_url, trigger_title, trigger_attributes, queued_at, created_at)
           VALUES (?, ?, ?, ?, ?, 'pending', 'queued', 1, ?, ?, ?, ?, ?, ?, ?)`,
          run.id,
          run.workspaceId,
          run.automationId,
          run.automationVersion,
          automation.run_count,
          run.prompt,
          run.trigger.provider,
          run.trigger.sourceUrl,
          run.trigger.title,
          JSON.stringify(run.trigger.attributes),
          run.at,
          run.at,
        );
        await appendEvents(tx, run.id, 1, events, run.at);
        return true;
      });
    },

    async find(workspaceId: string, id: string): Promise<StoredRun | undefined> {
      const row = await database.one<RunRow>(`SELECT * FROM runs WHERE id = ? AND workspace_id = ?`, id, workspaceId);
      return row && runFromRow(row);
    },

    async get(id: string): Promise<StoredRun | undefined> {
      const row = await database.one<RunRow>('SELECT * FROM runs WHERE id = ?', id);
      return row && runFromRow(row);
    },

    /** One page of an automation's runs, newest first, and how many there are in all. */
    async list(automationId: string, page: number, pageSize: number): Promise<{ total: number; runs: StoredRun[] }> {
      const count = await database.one<{ n: number }>(
        'SELECT COUNT(*) AS n FROM runs WHERE automation_id = ?',
        automationId,
      );
      const rows = await database.all<RunRow>(
        'SELECT * FROM runs WHERE automation_id = ? ORDER BY number DESC LIMIT ? OFFSET ?',
        automationId,
        pageSize,
        (page - 1) * pageSize,
      );
      return { total: count?.n ?? 0, runs: rows.map(runFromRow) };
    },

    async events(runId: string, after: number, limit: number): Promise<RunEvent[]> {
      const rows = await database.all<EventRow>(
        'SELECT id, turn, type, data, created_at FROM run_events WHERE run_id = ? AND id > ? ORDER BY id LIMIT ?',
        runId,
        after,
        limit,
      );
      return rows.map(eventFromRow);
    },

    /**
     * Notes that the run is to be cancelled. A waiting one ends at once. Answers what it was, or undefined when there
     * is no such run in the workspace.
     */
    async requestCancel(
      workspaceId: string,
      id: string,
      at: number,
      workspaceExpiresAt: number,
    ): Promise<RunStatus | undefined> {
      return database.write(async (tx) => {
        const row = await tx.one<RunRow>(`SELECT * FROM runs WHERE id = ? AND workspace_id = ?`, id, workspaceId);
        if (!row) return undefined;
        if (row.status === 'pending') {
          await appendEvents(
            tx,
            id,
            row.turn,
            // One that lost its runner went back to the queue with an earlier cancel.
            row.cancel_requested_at === null
              ? [asked, { type: 'run_cancelled', data: {} }]
              : [{ type: 'run_cancelled', data: {} }],
            at,
          );
          await tx.run(
            `UPDATE runs SET status = 'cancelled', phase = NULL,
               cancel_requested_at = COALESCE(cancel_requested_at, ?), completed_at = ?,
               workspace_expires_at = ? WHERE id = ?`,
            at,
            at,
            workspaceExpiresAt,
            id,
          );
        }
        if (row.status === 'running' && row.cancel_requested_at === null) {
          await appendEvents(tx, id, row.turn, [asked], at);
          await tx.run('UPDATE runs SET cancel_requested_at = ? WHERE id = ?', at, id);
        }
        return row.status;
      });
    },

    /** Reopens a finished run for its next turn; answers what it was, or undefined when there is no such run. */
    async reopen(
      workspaceId: string,
      id: string,
      prompt: string,
      events: readonly NewRunEvent[],
      at: number,
    ): Promise<RunStatus | undefined> {
      return database.write(async (tx) => {
        const row = await tx.one<RunRow>(`SELECT * FROM runs WHERE id = ? AND workspace_id = ?`, id, workspaceId);
        if (!row) return undefined;
        if (row.status === 'pending' || row.status === 'running') return row.status;
        await tx.run(
          `UPDATE runs SET status = 'pending', phase = 'queued', turn = turn + 1, attempts = 0, prompt = ?, queued_at = ?,
             lines_seen = 0, turn_started_at = NULL, stop_reason = NULL, completed_at = NULL, cancel_requested_at = NULL,
             result_summary = NULL, failure_category = NULL, failure_message = NULL, workspace_expires_at = NULL
           WHERE id = ?`,
          prompt,
          at,
          id,
        );
        await appendEvents(tx, id, row.turn + 1, events, at);
        return row.status;
      });
    },
  };
}
export type RunStore = ReturnType<typeof runStore>;
