import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { Database } from '../../src/db/database.ts';
import { migrate } from '../../src/db/migrate.ts';
import { openSqlite } from '../../src/db/sqlite.ts';

export type TestDatabase = Database & AsyncDisposable & { readonly file: string };

/** A migrated database of its own; `await using` closes it and removes its directory. */
export async function testDatabase(): Promise<TestDatabase> {
  const database = await emptyDatabase();
  await migrate(database);
  return database;
}

/** As `testDatabase`, without any table. */
export async function emptyDatabase(): Promise<TestDatabase> {
  const directory = await mkdtemp(path.join(tmpdir(), 'slipway-db-'));
  const file = path.join(directory, 'slipway.db');
  const database = await openSqlite(file);
  return Object.assign(database, {
    file,
    async [Symbol.asyncDispose]() {
      await database.close();
      await rm(directory, { recursive: true, force: true });
    },
  });
}
