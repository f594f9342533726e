import { Database as Sqlite } from 'bun:sqlite';
import { AsyncLocalStorage } from 'node:async_hooks';
import { open as openFile } from 'node:fs/promises';
import type { Database, Reader, Transaction, Value } from './database.ts';
import { type Statements, statementsOf } from './statements.ts';

/** How long a write waits for another process (the command line beside a server) before it fails. */
const lockWaitMs = 10_000;

/**
 * FULL syncs the log at every commit, so that what was acknowledged survives a power cut; with NORMAL the last
 * transactions could be gone. Measured on a virtual disk: 0.22 ms a commit against 0.01 ms. Runs start by the
 * minute and events are written in batches, so the promise is worth the price.
 */
const pragmas = ['journal_mode = WAL', 'synchronous = FULL', 'foreign_keys = ON', 'journal_size_limit = 67108864'];

/**
 * Opens the database file, which is made (readable by its owner only) where it is missing; its directory must exist.
 * Nothing is migrated: see `migrate`. Rejects with a message that names no path; the cause has the engine's words.
 *
 * One connection writes, behind a queue; another one, read-only, serves `all` and `one`, so that nobody sees an open
 * transaction. The reads of one turn of the event loop share a snapshot, which ends with every commit of our own.
 */
export async function openSqlite(file: string): Promise<Database> {
  const { writer, reader } = await connect(file);
  const readStatements = statementsOf(reader);
  const writeStatements = statementsOf(writer);
  const scope = new AsyncLocalStorage<{ open: boolean }>();
  let last: Promise<unknown> = Promise.resolve();
  let closing: Promise<void> | undefined;
  let disconnected = false;

  const snapshot = snapshotOn(reader, readStatements);
  const committed = readerOn(readStatements, () => {
    if (disconnected) throw new Error('The database is closed');
    snapshot.open();
  });

  async function transact<T>(work: (tx: Transaction) => Promise<T>): Promise<T> {
    await begin(writeStatements);
    const turn = { open: true };
    try {
      const value = await scope.run(turn, () => work(transactionOn(writeStatements, turn)));
      snapshot.end();
      writeStatements.get('COMMIT').run();
      return value;
    } catch (error) {
      // A full disk makes SQLite roll back by itself: a second rollback would hide the reason.
      if (writer.inTransaction) writeStatements.get('ROLLBACK').run();
      throw error;
    } finally {
      turn.open = false;
    }
  }

  async function disconnect(): Promise<void> {
    await last;
    disconnected = true;
    snapshot.end();
    readStatements.clear();
    writeStatements.clear();
    // The writer goes last: the last connection folds the log back into the file.
    reader.close(true);
    writer.close(true);
  }

  return {
    ...committed,
    skipLocked: '',
    async write(work) {
      if (closing) throw new Error('The database is closed');
      if (scope.getStore()?.open) throw new Error('A write inside a write would wait for itself: use its transaction');
      const result = last.then(() => transact(work));
      last = result.catch(() => undefined);
      return result;
    },
    isUniqueViolation: (error) => /^SQLITE_CONSTRAINT_(UNIQUE|PRIMARYKEY|ROWID)$/.test(codeOf(error)),
    close() {
      closing ??= disconnect();
      return closing;
    },
  };
}

async function connect(file: string): Promise<{ writer: Sqlite; reader: Sqlite }> {
  let writer: Sqlite | undefined;
  try {
    await (await openFile(file, 'a', 0o600)).close();
    writer = new Sqlite(file, { readwrite: true, strict: true });
    // Waiting comes first: the change to WAL may itself have to wait for another process.
    writer.run('PRAGMA busy_timeout = 5000');
    for (const pragma of pragmas) writer.run(`PRAGMA ${pragma}`);
    // From here on a busy file is waited for in `begin`, which leaves the event loop free meanwhile.
    writer.run('PRAGMA busy_timeout = 0');
    const reader = new Sqlite(file, { readonly: true, strict: true });
    reader.run('PRAGMA busy_timeout = 5000');
    return { writer, reader };
  } catch (cause) {
    writer?.close();
    const reason = codeOf(cause) === 'SQLITE_NOTADB' ? 'is not a database' : 'cannot be opened';
    throw new Error(
      `The database file ${reason}: check that the data directory is Slipway's own and can be written to`,
      { cause },
    );
  }
}

/** Starts a transaction that may write. SQLite's own waiting would hold up every request of this process. */
async function begin(statements: Statements): Promise<void> {
  const deadline = performance.now() + lockWaitMs;
  for (let pauseMs = 1; ; pauseMs = Math.min(pauseMs * 2, 50)) {
    try {
      statements.get('BEGIN IMMEDIATE').run();
      return;
    } catch (error) {
      if (!codeOf(error).startsWith('SQLITE_BUSY') || performance.now() > deadline) throw error;
    }
    await Bun.sleep(pauseMs);
  }
}

/**
 * The transaction that the reads of one turn of the event loop share. Two thirds of what a keyed read costs on its own
 * is to begin and to end such a transaction: 3.2 µs against 1.1 µs (measured).
 */
function snapshotOn(reader: Sqlite, statements: Statements) {
  let isOpen = false;
  let scheduled = false;

  function end(): void {
    if (!isOpen) return;
    isOpen = false;
    // An engine that met a damaged file may have ended the transaction by itself.
    if (reader.inTransaction) statements.get('COMMIT').run();
  }

  return {
    /** To be called before each read. What others commit afterwards is seen from the next turn on. */
    open(): void {
      if (isOpen) return;
      statements.get('BEGIN').run();
      isOpen = true;
      if (scheduled) return;
      scheduled = true;
      setImmediate(() => {
        scheduled = false;
        end();
      });
    },
    /** Ends it early. Before a commit of our own: whoever awaits the write sees it, and no reader keeps the log long. */
    end,
  };
}

/** Reads on one connection; `check` throws when it must not be used any more. */
function readerOn(statements: Statements, check: () => void): Reader {
  return {
    async all<T>(sql: string, ...values: Value[]): Promise<T[]> {
      check();
      return statements.get(sql).all(...values) as T[];
    },
    async one<T>(sql: string, ...values: Value[]): Promise<T | undefined> {
      check();
      return (statements.get(sql).get(...values) ?? undefined) as T | undefined;
    },
  };
}

function transactionOn(statements: Statements, turn: { readonly open: boolean }): Transaction {
  const check = () => {
    if (!turn.open) throw new Error('The transaction has ended: await everything that is done in it');
  };
  return {
    ...readerOn(statements, check),
    async run(sql, ...values) {
      check();
      return statements.get(sql).run(...values).changes;
    },
  };
}

function codeOf(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : '';
}
