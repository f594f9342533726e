/**
 * The model gateway: the only way from a sandbox to a model, on a Unix socket per run. The real key is added here.
 *
 * Protocol: `open` listens on `socketPath` (an old socket file there is replaced). Before a request leaves, the
 * gateway calls `reserve`, which must have written the request down when it resolves; after it, exactly one `settle`.
 * `session.record()` tells at any time what happened in this turn. `session.close()` aborts requests under way.
 */
export interface Gateway {
  open(run: GatewayRun): Promise<GatewaySession>;
  close(): Promise<void>;
}

export interface GatewayRun {
  readonly runId: string;
  readonly socketPath: string;
  readonly provider: ModelProvider;
  /** Every request is made for this model, whatever the harness asked for. */
  readonly model: string;
  readonly maxOutputTokensPerRequest: number;
  /** The provider's key at the time of each request; null when there is none. */
  apiKey(): Promise<string | null>;
  /** Counts one more request of the run, or answers null when its limit is reached. Atomic. */
  reserve(): Promise<string | null>;
  settle(requestId: string, outcome: ModelRequestOutcome): Promise<void>;
  /** Called once when a limit of the run was hit: the sandbox is to be stopped, whatever the harness does. */
  onLimit(limit: 'model_requests'): void;
}

export const modelProviders = ['openai', 'anthropic', 'google', 'xai', 'mistral', 'deepseek'] as const;
export type ModelProvider = (typeof modelProviders)[number];

export interface ModelRequestOutcome {
  /** False when it never left: refused by us, or no connection. */
  readonly reachedProvider: boolean;
  readonly upstreamStatus: number | null;
  readonly failure: ModelFailure | null;
  /** All input, cached tokens included. */
  readonly inputTokens: number;
  readonly cachedInputTokens: number;
  readonly cacheWriteTokens: number;
  readonly outputTokens: number;
  /** Millionths of a US dollar, rounded up; null where the price is unknown. */
  readonly costMicros: number | null;
  readonly durationMs: number;
}

export type ModelFailure =
  | 'request_limit'
  | 'output_limit'
  | 'authentication'
  | 'rate_limited'
  | 'unavailable'
  | 'rejected'
  | 'aborted';

export interface GatewaySession {
  record(): GatewayRecord;
  close(): Promise<void>;
}

/** What decides a run's failureCategory before exit codes and the harness's own words do. */
export interface GatewayRecord {
  /** Those of this turn that were counted against the limit. */
  readonly requests: number;
  readonly succeeded: number;
  /** The failure of the newest request, null when it succeeded or there was none. */
  readonly lastFailure: ModelFailure | null;
  /** What the provider answered to that request; null when nothing came back, or when we refused it ourselves. */
  readonly lastStatus: number | null;
  readonly requestLimitHit: boolean;
}
