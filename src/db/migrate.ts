import { createHash } from 'node:crypto';
import type { Database, Reader, Transaction } from './database.ts';
import { statementsIn } from './ddl.ts';
import foundation from './migrations/0001_foundation.sql' with { type: 'text' };
import settings from './migrations/0002_settings.sql' with { type: 'text' };
import egress from './migrations/0003_egress.sql' with { type: 'text' };

export interface Migration {
  /** Number and name of its file: `0001_foundation`. */
  readonly name: string;
  readonly sql: string;
}

/** In the order of their numbers, and append-only: a released migration is never edited, the next one mends it. */
export const migrations: readonly Migration[] = [
  { name: '0001_foundation', sql: foundation },
  { name: '0002_settings', sql: settings },
  { name: '0003_egress', sql: egress },
];

const recordTable = `CREATE TABLE IF NOT EXISTS schema_migrations (
  name       TEXT PRIMARY KEY,
  hash       TEXT NOT NULL,
  applied_at INTEGER NOT NULL
) STRICT`;

/** The database and this executable do not fit together. `message` says what to do. */
export class MigrationError extends Error {
  override readonly name = 'MigrationError';
}

/**
 * Brings the database up to what this executable knows, each migration in a transaction of its own, and answers the
 * names of those that it applied. May be called by several processes at once. Throws `MigrationError` where the
 * database was written by a newer executable, or a migration was edited after it had been applied.
 */
export async function migrate(database: Database, known: readonly Migration[] = migrations): Promise<string[]> {
  await database.write((tx) => runEach(tx, recordTable));
  const applied: string[] = [];
  for (;;) {
    const name = await applyNext(database, known);
    if (name === undefined) return applied;
    applied.push(name);
  }
}

/** What was applied is read inside the transaction: another process may just have done the same. */
function applyNext(database: Database, known: readonly Migration[]): Promise<string | undefined> {
  return database.write(async (tx) => {
    const next = known[await countApplied(tx, known)];
    if (!next) return undefined;
    await runEach(tx, next.sql);
    await tx.run(
      'INSERT INTO schema_migrations (name, hash, applied_at) VALUES (?, ?, ?)',
      next.name,
      hashOf(next),
      Date.now(),
    );
    return next.name;
  });
}

async function runEach(tx: Transaction, sql: string): Promise<void> {
  for (const statement of statementsIn(sql)) await tx.run(statement);
}

/** How many of the known migrations the database has; throws where what it has is not their beginning. */
async function countApplied(reader: Reader, known: readonly Migration[]): Promise<number> {
  const rows = await reader.all<{ name: string; hash: string }>(
    'SELECT name, hash FROM schema_migrations ORDER BY name',
  );
  for (const [position, row] of rows.entries()) {
    const migration = known[position];
    if (!migration) {
      throw new MigrationError(
        `The database has the migration ${row.name}, which this version of Slipway does not know: ` +
          'it was last used by a newer version. Start that version, or a newer one.',
      );
    }
    if (migration.name !== row.name) {
      throw new MigrationError(
        `The database has the migration ${row.name} where this version of Slipway has ${migration.name}: ` +
          'it belongs to another build. Start the build that it was made with.',
      );
    }
    if (hashOf(migration) !== row.hash) {
      throw new MigrationError(
        `The migration ${row.name} was edited after this database had applied it. ` +
          'Undo the edit and put the change into a new migration, or start with an empty data directory.',
      );
    }
  }
  return rows.length;
}

/** Comments and line ends may change: only what the engine is given counts. */
function hashOf(migration: Migration): string {
  return createHash('sha256').update(statementsIn(migration.sql).join(';\n')).digest('hex');
}
