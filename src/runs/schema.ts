import { z } from 'zod';

export const RunStatus = z.enum(['pending', 'running', 'succeeded', 'failed', 'cancelled']);
export type RunStatus = z.infer<typeof RunStatus>;

/** What an active run is doing; null once it has finished. */
export const RunPhase = z.enum(['queued', 'preparing', 'checking_out', 'agent', 'finishing']);
export type RunPhase = z.infer<typeof RunPhase>;

export const FailureCategory = z.enum([
  'execution_failed',
  'runtime_limit_exceeded',
  'model_request_limit_exceeded',
  'output_limit_exceeded',
  'budget_exceeded',
  'model_authentication_failed',
  'model_rate_limited',
  'model_unavailable',
  'repository_unavailable',
  'sandbox_unavailable',
  'sandbox_out_of_memory',
  'sandbox_disk_full',
  'configuration_unavailable',
  'worker_lost',
]);
export type FailureCategory = z.infer<typeof FailureCategory>;

export const RunEventType = z.enum([
  'run_queued',
  'run_started',
  'sandbox_ready',
  'repositories_checked_out',
  'user_message',
  'message',
  'reasoning',
  'tool_call',
  'tool_result',
  'file_change',
  'usage',
  'egress_denied',
  'warning',
  'error',
  'diff',
  'notification_sent',
  'notification_failed',
  'cancel_requested',
  'run_succeeded',
  'run_failed',
  'run_cancelled',
]);
export type RunEventType = z.infer<typeof RunEventType>;

/** What each event's `data` holds. Text may carry placeholders, never the value of a secret. */
export interface RunEventData {
  run_queued: Record<string, never>;
  run_started: { attempt: number };
  sandbox_ready: { harness: string; model: string };
  repositories_checked_out: { repositories: { fullName: string; path: string; branch: string; commit: string }[] };
  user_message: { text: string };
  message: { text: string };
  reasoning: { text: string };
  tool_call: {
    callId: string;
    tool: string;
    kind: 'command' | 'file' | 'mcp' | 'web' | 'other';
    server: string | null;
    input: unknown;
  };
  tool_result: { callId: string; ok: boolean; output: string; exitCode: number | null };
  file_change: { callId: string | null; ok: boolean; changes: { path: string; kind: 'add' | 'update' | 'delete' }[] };
  /** One request to a model, counted by the gateway. */
  usage: {
    model: string;
    inputTokens: number;
    cachedInputTokens: number;
    outputTokens: number;
    costMicros: number | null;
  };
  egress_denied: { host: string; port: number; method: string | null; path: string | null; reason: string };
  warning: { message: string };
  error: { message: string };
  /** A unified diff of the whole workspace against what was checked out, new files included. */
  diff: {
    files: { path: string; additions: number | null; deletions: number | null }[];
    patch: string;
    truncated: boolean;
  };
  notification_sent: { channelId: string };
  notification_failed: { channelId: string; message: string };
  cancel_requested: Record<string, never>;
  run_succeeded: { resultSummary: string | null };
  run_failed: { category: FailureCategory; message: string };
  run_cancelled: Record<string, never>;
}

/** An event before the transcript has given it an id and a time. */
export type NewRunEvent = { [T in RunEventType]: { readonly type: T; readonly data: RunEventData[T] } }[RunEventType];

export const RunEvent = z.object({
  id: z.int().meta({ description: 'Counts from 1 within the run' }),
  type: RunEventType,
  createdAt: z.iso.datetime(),
  turn: z.int(),
  data: z.record(z.string(), z.unknown()).nullable(),
});
export type RunEvent = z.infer<typeof RunEvent>;
