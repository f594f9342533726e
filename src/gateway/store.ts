import type { Database } from '../db/database.ts';
import { newId } from '../kernel/id.ts';
import type { ModelProvider, ModelRequestOutcome } from './gateway.ts';

/** What a run has used over all its turns. */
export interface ModelUsage {
  /** Requests that reached the provider, or may have. */
  readonly requests: number;
  /** Cached tokens included. */
  readonly inputTokens: number;
  readonly outputTokens: number;
  /** Millionths of a US dollar; null where the price of any request is unknown. */
  readonly costMicros: number | null;
}

export interface NewModelRequest {
  readonly runId: string;
  readonly turn: number;
  readonly provider: ModelProvider;
  readonly model: string;
  /** The most requests that the run may make, all turns together. */
  readonly limit: number;
  readonly at: number;
}

/** What one request has used, as its `usage` event tells. */
export interface RequestUsage {
  readonly model: string;
  readonly inputTokens: number;
  readonly cachedInputTokens: number;
  readonly outputTokens: number;
  readonly costMicros: number | null;
}

export type ModelRequestStore = ReturnType<typeof modelRequestStore>;

interface UsageRow {
  run_id: string;
  requests: number;
  input_tokens: number;
  output_tokens: number;
  cost_micros: number;
  unpriced: number;
}

/**
 * The requests that runs made to models. A row is written as `reached_provider = 1` before its request leaves and is
 * set to 0 when it turns out that it never left. So a row that a crash left unsettled (`duration_ms` is null) counts
 * as a request, against the limit too: it may have reached the provider. What it used is not known and counts as
 * nothing, and it does not make the run's cost unknown.
 */
export function modelRequestStore(database: Database) {
  return {
    /**
     * Counts one more request of a run and answers its id, or null when the limit is reached. The row is committed
     * before this resolves. Parallel calls cannot overshoot: writers queue, and a run lives in one process at a time.
     */
    reserve(request: NewModelRequest): Promise<string | null> {
      return database.write(async (tx) => {
        const made = await tx.one<{ requests: number }>(
          'SELECT COUNT(*) AS requests FROM model_requests WHERE run_id = ? AND reached_provider = 1',
          request.runId,
        );
        if ((made?.requests ?? 0) >= request.limit) return null;
        const id = newId();
        await tx.run(
          `INSERT INTO model_requests (id, run_id, turn, at, provider, model, reached_provider)
           VALUES (?, ?, ?, ?, ?, ?, 1)`,
          id,
          request.runId,
          request.turn,
          request.at,
          request.provider,
          request.model,
        );
        return id;
      });
    },

    /** Writes down how a request ended. Only the first call for an id counts. */
    async settle(id: string, outcome: ModelRequestOutcome): Promise<void> {
      await database.write((tx) =>
        tx.run(
          `UPDATE model_requests SET reached_provider = ?, upstream_status = ?, failure = ?, input_tokens = ?,
             cached_tokens = ?, cache_write_tokens = ?, output_tokens = ?, cost_micros = ?, duration_ms = ?
           WHERE id = ? AND duration_ms IS NULL`,
          outcome.reachedProvider ? 1 : 0,
          outcome.upstreamStatus,
          outcome.failure,
          outcome.inputTokens,
          outcome.cachedInputTokens,
          outcome.cacheWriteTokens,
          outcome.outputTokens,
          outcome.costMicros,
          outcome.durationMs,
          id,
        ),
      );
    },

    /** What each settled request of a turn has used, oldest first; those that used nothing are left out. */
    settledOf: (runId: string, turn: number): Promise<RequestUsage[]> =>
      database.all<RequestUsage>(
        `SELECT model, input_tokens AS "inputTokens", cached_tokens AS "cachedInputTokens",
           output_tokens AS "outputTokens", cost_micros AS "costMicros"
         FROM model_requests
         WHERE run_id = ? AND turn = ? AND duration_ms IS NOT NULL AND (input_tokens > 0 OR output_tokens > 0)
         ORDER BY at, id`,
        runId,
        turn,
      ),

    /** What one run has used; null until its first request. */
    async usageOf(runId: string): Promise<ModelUsage | null> {
      return (await usageOfMany(database, [runId])).get(runId) ?? null;
    },

    /** What each of several runs has used, in one query; a run without requests is not in the map. */
    usageOfMany: (runIds: readonly string[]) => usageOfMany(database, runIds),
  };
}

async function usageOfMany(database: Database, runIds: readonly string[]): Promise<Map<string, ModelUsage>> {
  if (runIds.length === 0) return new Map();
  const rows = await database.all<UsageRow>(
    `SELECT run_id,
       CAST(SUM(reached_provider) AS BIGINT) AS requests,
       CAST(SUM(input_tokens) AS BIGINT) AS input_tokens,
       CAST(SUM(output_tokens) AS BIGINT) AS output_tokens,
       CAST(COALESCE(SUM(cost_micros), 0) AS BIGINT) AS cost_micros,
       CAST(SUM(CASE WHEN reached_provider = 1 AND duration_ms IS NOT NULL AND cost_micros IS NULL
                     THEN 1 ELSE 0 END) AS BIGINT) AS unpriced
     FROM model_requests WHERE run_id IN (${runIds.map(() => '?').join(', ')}) GROUP BY run_id`,
    ...runIds,
  );
  return new Map(
    rows.map((row) => [
      row.run_id,
      {
        requests: row.requests,
        inputTokens: row.input_tokens,
        outputTokens: row.output_tokens,
        costMicros: row.unpriced > 0 ? null : row.cost_micros,
      },
    ]),
  );
}
