/** What a column holds: INTEGER as number (up to 2^53), TEXT as string, REAL as number. */
export type Value = string | number | null;

/**
 * The database port. SQL is written once, in the dialect that SQLite and Postgres share: `?` for parameters,
 * UPSERT and RETURNING, times as INTEGER milliseconds, JSON as TEXT, no JSON functions.
 *
 * Protocol:
 *  1. `all` and `one` read committed data only; they never see an open `write`. Once a `write` has resolved, every
 *     read of this process sees it. What another process commits is seen from the next turn of the event loop on.
 *  2. `write` runs its work in one transaction and commits when the work's promise is fulfilled. A throw rolls
 *     everything back and is passed on. Writers of one process queue behind each other.
 *  3. Inside `write` only `tx` may be awaited: no network, no timer, no other port. A nested `write` throws.
 *  4. `close` waits for writes under way; afterwards every call rejects.
 */
export interface Database extends Reader {
  write<T>(work: (tx: Transaction) => Promise<T>): Promise<T>;
  /** Appended to a SELECT that claims rows: empty where writers are serial, `FOR UPDATE SKIP LOCKED` on Postgres. */
  readonly skipLocked: string;
  /** True for the error that a UNIQUE or PRIMARY KEY constraint raises. */
  isUniqueViolation(error: unknown): boolean;
  close(): Promise<void>;
}

export interface Reader {
  /** Every row, as objects whose keys are the column names. `T` is the caller's word for the columns it selected. */
  all<T>(sql: string, ...values: Value[]): Promise<T[]>;
  /** The first row, or undefined. */
  one<T>(sql: string, ...values: Value[]): Promise<T | undefined>;
}

export interface Transaction extends Reader {
  /** Runs a statement and answers how many rows it changed. */
  run(sql: string, ...values: Value[]): Promise<number>;
}
