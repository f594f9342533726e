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

export const InferenceUsage = z.object({
  costMicros: z.int().nullable().meta({ description: 'Millionths of a US dollar; null where a price is unknown' }),
  inputTokens: z.int().meta({ description: 'Cached tokens included' }),
  outputTokens: z.int(),
  requests: z.int(),
});
export type InferenceUsage = z.infer<typeof InferenceUsage>;

const scalar = z.union([z.string(), z.number(), z.boolean(), z.null()]);

/** The fields of a run as lists show them. */
export const RunSummary = z.object({
  id: z.guid(),
  number: z.int(),
  status: RunStatus,
  createdAt: z.iso.datetime(),
  startedAt: z.iso.datetime().nullable(),
  completedAt: z.iso.datetime().nullable(),
  resultSummary: z.string().nullable(),
  failureCategory: FailureCategory.nullable(),
  failureMessage: z.string().nullable(),
  inferenceUsage: InferenceUsage.nullable(),
  trigger: z.object({ provider: z.string(), sourceUrl: z.string().nullable(), title: z.string() }),
});
export type RunSummary = z.infer<typeof RunSummary>;

/** One run, whole, with its transcript. */
export const Run = RunSummary.extend({
  automationId: z.guid(),
  automationName: z.string(),
  automationVersion: z.int(),
  turn: z.int(),
  phase: RunPhase.nullable(),
  cancelRequestedAt: z.iso.datetime().nullable(),
  trigger: RunSummary.shape.trigger.extend({ attributes: z.record(z.string(), scalar) }),
  events: z.array(RunEvent),
});
export type Run = z.infer<typeof Run>;

export const EgressEntry = z.object({
  id: z.string(),
  turn: z.int(),
  at: z.iso.datetime(),
  host: z.string(),
  port: z.int(),
  method: z.string().nullable(),
  path: z.string().nullable(),
  status: z.int().nullable(),
  bytesUp: z.int(),
  bytesDown: z.int(),
  durationMs: z.int(),
  secrets: z.array(z.string()).meta({ description: 'Names of the secrets that were put in' }),
  decision: z.enum(['allowed', 'denied']),
  reason: z.string().nullable(),
});

/** A message to the agent: kept as it was sent, but not blank. */
export const Message = z
  .string()
  .min(1, { error: 'Must not be empty', abort: true })
  // zod's own limit counts code points; the interface counts UTF-16 units.
  .refine((text) => text.length <= 20_000, 'Must be at most 20000 characters')
  .refine((text) => text.trim() !== '', 'Must not be blank');

const wholeNumber = (least: number, most: number) =>
  z
    .string()
    .regex(/^\d{1,9}$/, 'Must be a whole number')
    .transform(Number)
    .pipe(z.int().min(least).max(most));

export const PageQuery = z.object({
  page: wholeNumber(1, 10_000).default(1),
  pageSize: wholeNumber(1, 50).default(10),
});

export const EventsQuery = z.object({ after: wholeNumber(0, 999_999_999).default(0) });

/** A turn's number as a path parameter. */
export const TurnNumber = wholeNumber(1, 999_999_999);
