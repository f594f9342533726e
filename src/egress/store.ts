import type { Database, Transaction } from '../db/database.ts';
import { newId } from '../kernel/id.ts';
import type { Log } from '../kernel/log.ts';
import type { EgressRequest } from './egress.ts';

/** A request as `GET /runs/{runId}/egress` shows it, its time still a number. */
export interface EgressRow extends EgressRequest {
  readonly id: string;
  readonly turn: number;
}

/** The ledger: every outbound request of every run. */
export interface LedgerStore {
  /** Takes a request to be written soon. A promise means that the queue is full: await it before the next. */
  record(runId: string, turn: number, request: EgressRequest): void | Promise<void>;
  /** Resolves when everything recorded so far is committed. Rejects when the database does not take it. */
  flush(): Promise<void>;
  /** One page, oldest first, with everything that was recorded before the call. */
  list(runId: string, page: { page: number; pageSize: number }): Promise<{ total: number; requests: EgressRow[] }>;
  /** Writes what is left. Nothing may be recorded afterwards. */
  close(): Promise<void>;
}

interface Waiting {
  readonly id: string;
  readonly runId: string;
  readonly turn: number;
  readonly request: EgressRequest;
}

interface Row {
  id: string;
  turn: number;
  at: number;
  host: string;
  port: number;
  method: string | null;
  path: string | null;
  status: number | null;
  bytes_up: number;
  bytes_down: number;
  duration_ms: number;
  secrets: string;
  decision: 'allowed' | 'denied';
  reason: string | null;
}

const flushAfterMs = 100;
const batchRows = 500;
/** From here on `record` asks its caller to wait. */
const fullRows = 5_000;
/** Beyond this, with a database that takes nothing, requests are dropped and the log says how many. */
const mostRows = 50_000;
const maxPathLength = 4096;

const insertRow = `INSERT INTO egress_requests
  (id, run_id, turn, at, host, port, method, path, status, bytes_up, bytes_down, duration_ms, secrets, decision, reason)
  VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`;

export function ledgerStore(database: Database, log: Log): LedgerStore {
  let queue: Waiting[] = [];
  let timer: ReturnType<typeof setTimeout> | undefined;
  let writing: Promise<void> | undefined;
  let dropped = 0;

  function schedule(): void {
    timer ??= setTimeout(() => {
      timer = undefined;
      flush().catch((error: unknown) => {
        log.error('The ledger of outbound requests could not be written; it is tried again.', error, { dropped });
        schedule();
      });
    }, flushAfterMs);
  }

  async function flush(): Promise<void> {
    while (queue.length > 0 || writing !== undefined) {
      writing ??= writeBatch().finally(() => {
        writing = undefined;
      });
      await writing;
    }
  }

  /** A batch leaves the queue only once it is committed, so that a failure loses nothing. */
  async function writeBatch(): Promise<void> {
    const batch = queue.slice(0, batchRows);
    await database.write(async (tx) => {
      const known = await knownRuns(tx, batch);
      for (const entry of batch) if (known.has(entry.runId)) await insert(tx, entry);
    });
    queue = queue.slice(batch.length);
  }

  return {
    record(runId, turn, request) {
      if (queue.length >= mostRows) {
        dropped += 1;
        return undefined;
      }
      queue.push({ id: newId(), runId, turn, request });
      schedule();
      // A failure is the timer's to report: the connection must not hang on a database that is down.
      return queue.length < fullRows ? undefined : flush().catch(() => {});
    },
    flush,
    async list(runId, { page, pageSize }) {
      await flush();
      const count = await database.one<{ total: number }>(
        'SELECT COUNT(*) AS total FROM egress_requests WHERE run_id = ?',
        runId,
      );
      const rows = await database.all<Row>(
        `SELECT id, turn, at, host, port, method, path, status, bytes_up, bytes_down, duration_ms, secrets, decision, reason
         FROM egress_requests WHERE run_id = ? ORDER BY at, id LIMIT ? OFFSET ?`,
        runId,
        pageSize,
        (page - 1) * pageSize,
      );
      return { total: count?.total ?? 0, requests: rows.map(fromRow) };
    },
    async close() {
      clearTimeout(timer);
      timer = undefined;
      await flush();
      clearTimeout(timer);
      if (dropped > 0) log.warn('Outbound requests are missing from the ledger.', { dropped });
    },
  };
}

/** A run may have been deleted meanwhile; its requests go with it and must not hold up those of the others. */
async function knownRuns(tx: Transaction, batch: readonly Waiting[]): Promise<Set<string>> {
  const ids = [...new Set(batch.map((entry) => entry.runId))];
  const marks = ids.map(() => '?').join(', ');
  const rows = await tx.all<{ id: string }>(`SELECT id FROM runs WHERE id IN (${marks})`, ...ids);
  return new Set(rows.map((row) => row.id));
}

async function insert(tx: Transaction, { id, runId, turn, request }: Waiting): Promise<void> {
  await tx.run(
    insertRow,
    id,
    runId,
    turn,
    Math.round(request.at),
    request.host,
    request.port,
    request.method,
    request.path === null ? null : request.path.slice(0, maxPathLength),
    request.status,
    request.bytesUp,
    request.bytesDown,
    Math.round(request.durationMs),
    JSON.stringify(request.secrets),
    request.decision,
    request.reason,
  );
}

const fromRow = (row: Row): EgressRow => ({
  id: row.id,
  turn: row.turn,
  at: row.at,
  host: row.host,
  port: row.port,
  method: row.method,
  path: row.path,
  status: row.status,
  bytesUp: row.bytes_up,
  bytesDown: row.bytes_down,
  durationMs: row.duration_ms,
  secrets: JSON.parse(row.secrets) as string[],
  decision: row.decision,
  reason: row.reason,
});
