import type { Transaction } from '../db/database.ts';
import { iso } from '../kernel/clock.ts';
import type { FailureCategory, NewRunEvent, RunEvent, RunPhase, RunStatus } from './schema.ts';
import type { RunState } from './state.ts';

/** Why the runner itself stopped an agent; written before it does, so that a crash does not lose the reason. */
export type StopReason = 'runtime_limit' | 'model_requests' | 'output_flood';

/** What was checked out where: the base that the diff is made against. */
export interface CheckedOut {
  readonly repositoryId: string;
  readonly fullName: string;
  /** Absolute path inside the sandbox. */
  readonly path: string;
  readonly branch: string;
  readonly commit: string;
}

export interface StoredTrigger {
  readonly provider: string;
  readonly sourceUrl: string | null;
  readonly title: string;
  readonly attributes: Readonly<Record<string, string | number | boolean | null>>;
}

/** A row of `runs`. Times are milliseconds. */
export interface StoredRun extends RunState {
  readonly id: string;
  readonly workspaceId: string;
  readonly automationId: string;
  readonly automationVersion: number;
  readonly number: number;
  /** The message of this turn, null for a first turn without one. */
  readonly prompt: string | null;
  readonly trigger: StoredTrigger;
  readonly leaseToken: number;
  readonly linesSeen: number;
  readonly turnStartedAt: number | null;
  readonly stopReason: StopReason | null;
  readonly sessionId: string | null;
  readonly checkouts: readonly CheckedOut[] | null;
  readonly lastEventId: number;
  readonly createdAt: number;
  readonly startedAt: number | null;
  readonly completedAt: number | null;
  readonly cancelRequestedAt: number | null;
  readonly resultSummary: string | null;
  readonly failureCategory: FailureCategory | null;
  readonly failureMessage: string | null;
}

/** A row as the database gives it. */
export interface RunRow {
  id: string;
  workspace_id: string;
  automation_id: string;
  automation_version: number;
  number: number;
  status: RunStatus;
  phase: RunPhase | null;
  turn: number;
  prompt: string | null;
  trigger_provider: string;
  trigger_source_url: string | null;
  trigger_title: string;
  trigger_attributes: string;
  attempts: number;
  lease_token: number;
  lines_seen: number;
  turn_started_at: number | null;
  stop_reason: StopReason | null;
  session_id: string | null;
  checkouts: string | null;
  last_event_id: number;
  created_at: number;
  started_at: number | null;
  completed_at: number | null;
  cancel_requested_at: number | null;
  result_summary: string | null;
  failure_category: FailureCategory | null;
  failure_message: string | null;
}

export interface EventRow {
  id: number;
  turn: number;
  type: RunEvent['type'];
  data: string | null;
  created_at: number;
}

/** Adds events behind the last one and answers the new last id. The run's row is locked by the caller's update. */
export async function appendEvents(
  tx: Transaction,
  runId: string,
  turn: number,
  events: readonly NewRunEvent[],
  at: number,
) {
  if (events.length === 0) return;
  const row = await tx.one<{ last_event_id: number }>(
    'UPDATE runs SET last_event_id = last_event_id + ? WHERE id = ? RETURNING last_event_id',
    events.length,
    runId,
  );
  let id = (row?.last_event_id ?? 0) - events.length;
  for (const event of events) {
    id += 1;
    await tx.run(
      'INSERT INTO run_events (run_id, id, turn, type, data, created_at) VALUES (?, ?, ?, ?, ?, ?)',
      runId,
      id,
      turn,
      event.type,
      JSON.stringify(event.data),
      at,
    );
  }
}

export const runFromRow = (row: RunRow): StoredRun => ({
  id: row.id,
  workspaceId: row.workspace_id,
  automationId: row.automation_id,
  automationVersion: row.automation_version,
  number: row.number,
  status: row.status,
  phase: row.phase,
  turn: row.turn,
  prompt: row.prompt,
  trigger: {
    provider: row.trigger_provider,
    sourceUrl: row.trigger_source_url,
    title: row.trigger_title,
    attributes: JSON.parse(row.trigger_attributes) as StoredTrigger['attributes'],
  },
  attempts: row.attempts,
  leaseToken: row.lease_token,
  linesSeen: row.lines_seen,
  turnStartedAt: row.turn_started_at,
  stopReason: row.stop_reason,
  sessionId: row.session_id,
  checkouts: row.checkouts === null ? null : (JSON.parse(row.checkouts) as CheckedOut[]),
  lastEventId: row.last_event_id,
  createdAt: row.created_at,
  startedAt: row.started_at,
  completedAt: row.completed_at,
  cancelRequested: row.cancel_requested_at !== null,
  cancelRequestedAt: row.cancel_requested_at,
  resultSummary: row.result_summary,
  failureCategory: row.failure_category,
  failureMessage: row.failure_message,
});

export const eventFromRow = (row: EventRow): RunEvent => ({
  id: row.id,
  type: row.type,
  createdAt: iso(row.created_at),
  turn: row.turn,
  data: row.data === null ? null : (JSON.parse(row.data) as Record<string, unknown>),
});
