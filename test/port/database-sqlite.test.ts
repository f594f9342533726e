import { Database as Sqlite } from 'bun:sqlite';
import { expect, test } from 'bun:test';
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { openSqlite } from '../../src/db/sqlite.ts';
import { emptyDatabase } from '../support/database.ts';
import { databaseConformance } from './database.ts';

databaseConformance('SQLite', emptyDatabase);

test('a write waits for another process without holding up this one', async () => {
  await using database = await emptyDatabase();
  await database.write((tx) => tx.run('CREATE TABLE items (id INTEGER PRIMARY KEY) STRICT'));
  using other = new Sqlite(database.file, { strict: true });
  other.run('BEGIN IMMEDIATE');
  other.run('INSERT INTO items (id) VALUES (1)');
  const writing = database.write((tx) => tx.run('INSERT INTO items (id) VALUES (2)'));
  // Turns of the event loop, and reads, go on while the write waits.
  await nextTurn();
  expect(await database.all('SELECT id FROM items')).toEqual([]);
  other.run('COMMIT');
  await writing;
  expect(await database.all<object>('SELECT id FROM items')).toEqual([{ id: 1 }, { id: 2 }]);
});

/** The next turn of the event loop. */
const nextTurn = () => new Promise((resolve) => setImmediate(resolve));

test('what another process committed is read from the next turn on', async () => {
  await using database = await emptyDatabase();
  await database.write((tx) => tx.run('CREATE TABLE items (id INTEGER PRIMARY KEY) STRICT'));
  using other = new Sqlite(database.file, { strict: true });
  for (const id of [1, 2, 3]) {
    other.run('INSERT INTO items (id) VALUES (?)', [id]);
    await nextTurn();
    expect(await database.all('SELECT id FROM items')).toHaveLength(id);
  }
});

test('the reads of one turn see one state', async () => {
  await using database = await emptyDatabase();
  await database.write((tx) => tx.run('CREATE TABLE items (id INTEGER PRIMARY KEY) STRICT'));
  using other = new Sqlite(database.file, { strict: true });
  await nextTurn();
  expect(await database.all('SELECT id FROM items')).toEqual([]);
  other.run('INSERT INTO items (id) VALUES (1)');
  expect(await database.all('SELECT id FROM items')).toEqual([]);
});

/** Empties the log into the file; false where a reader still needs it. */
function emptiesLog(other: Sqlite): boolean {
  const row = other.query<{ busy: number }, []>('PRAGMA wal_checkpoint(TRUNCATE)').get();
  return row?.busy === 0;
}

test('no read holds the log back: neither after its turn nor after a write', async () => {
  await using database = await emptyDatabase();
  await database.write((tx) => tx.run('CREATE TABLE items (id INTEGER PRIMARY KEY) STRICT'));
  using other = new Sqlite(database.file, { strict: true });
  await database.all('SELECT id FROM items');
  other.run('INSERT INTO items (id) VALUES (1)');
  expect(emptiesLog(other)).toBe(false);
  await nextTurn();
  expect(emptiesLog(other)).toBe(true);
  await database.all('SELECT id FROM items');
  await database.write((tx) => tx.run('INSERT INTO items (id) VALUES (2)'));
  expect(emptiesLog(other)).toBe(true);
});

test('closing in the turn of a read lets go of everything', async () => {
  const database = await emptyDatabase();
  await database.write((tx) => tx.run('CREATE TABLE items (id INTEGER PRIMARY KEY) STRICT'));
  await database.all('SELECT id FROM items');
  await database.close();
  expect(await Bun.file(`${database.file}-wal`).exists()).toBe(false);
  await nextTurn();
  await database[Symbol.asyncDispose]();
});

test('a read cannot write', async () => {
  await using database = await emptyDatabase();
  await database.write((tx) => tx.run('CREATE TABLE items (id INTEGER PRIMARY KEY) STRICT'));
  await expect(database.one('INSERT INTO items (id) VALUES (1) RETURNING id')).rejects.toThrow();
  expect(await database.all('SELECT id FROM items')).toEqual([]);
});

test('commits are synced in full and foreign keys are held', async () => {
  await using database = await emptyDatabase();
  await database.write(async (tx) => {
    expect(await tx.one<object>('PRAGMA synchronous')).toEqual({ synchronous: 2 });
    expect(await tx.one<object>('PRAGMA journal_mode')).toEqual({ journal_mode: 'wal' });
    expect(await tx.one<object>('PRAGMA foreign_keys')).toEqual({ foreign_keys: 1 });
  });
});

test('thousands of different texts leave the kept statements bounded and working', async () => {
  await using database = await emptyDatabase();
  for (let number = 0; number < 1200; number++) {
    expect(await database.one<object>(`SELECT ${number} AS number`)).toEqual({ number });
  }
  expect(await database.one<object>('SELECT 0 AS number')).toEqual({ number: 0 });
});

test('a column that is added later is seen by statements that were prepared before', async () => {
  await using database = await emptyDatabase();
  await database.write((tx) => tx.run('CREATE TABLE items (id INTEGER PRIMARY KEY) STRICT'));
  await database.write((tx) => tx.run('INSERT INTO items (id) VALUES (1)'));
  expect(await database.one<object>('SELECT * FROM items')).toEqual({ id: 1 });
  await database.write((tx) => tx.run("ALTER TABLE items ADD COLUMN name TEXT NOT NULL DEFAULT 'x'"));
  expect(await database.one<object>('SELECT * FROM items')).toEqual({ id: 1, name: 'x' });
});

test('the file can be read by its owner only, its log included', async () => {
  await using database = await emptyDatabase();
  await database.write((tx) => tx.run('CREATE TABLE items (id INTEGER PRIMARY KEY) STRICT'));
  for (const file of [database.file, `${database.file}-wal`]) expect((await stat(file)).mode & 0o777).toBe(0o600);
});

test('closing folds the log into the file, and what was written is there when it is opened again', async () => {
  const directory = await mkdtemp(path.join(tmpdir(), 'slipway-db-'));
  try {
    const file = path.join(directory, 'slipway.db');
    const first = await openSqlite(file);
    await first.write((tx) => tx.run('CREATE TABLE items (id INTEGER PRIMARY KEY) STRICT'));
    await first.write((tx) => tx.run('INSERT INTO items (id) VALUES (7)'));
    await first.close();
    expect(await Bun.file(`${file}-wal`).exists()).toBe(false);
    const second = await openSqlite(file);
    expect(await second.all<object>('SELECT id FROM items')).toEqual([{ id: 7 }]);
    await second.close();
  } finally {
    await rm(directory, { recursive: true });
  }
});

test('a file that is no database is refused, left as it was, and its path is not told', async () => {
  const directory = await mkdtemp(path.join(tmpdir(), 'slipway-db-'));
  try {
    const file = path.join(directory, 'slipway.db');
    const text = 'certainly not a database, and long enough to be read as a page header. '.repeat(20);
    await writeFile(file, text);
    const failure = (await openSqlite(file).catch((error: unknown) => error)) as Error;
    expect(failure.message).toStartWith('The database file is not a database');
    expect(failure.message).not.toContain(directory);
    expect(await readFile(file, 'utf8')).toBe(text);
    const missing = (await openSqlite(path.join(directory, 'no', 'x.db')).catch((error: unknown) => error)) as Error;
    expect(missing.message).toStartWith('The database file cannot be opened');
  } finally {
    await rm(directory, { recursive: true });
  }
});
