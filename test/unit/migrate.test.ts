import { expect, test } from 'bun:test';
import { readdir } from 'node:fs/promises';
import path from 'node:path';
import { statementsIn } from '../../src/db/ddl.ts';
import { type Migration, migrate, migrations } from '../../src/db/migrate.ts';
import { emptyDatabase, testDatabase } from '../support/database.ts';

const first: Migration = { name: '0001_a', sql: 'CREATE TABLE a (id INTEGER PRIMARY KEY) STRICT;' };
const second: Migration = {
  name: '0002_b',
  sql: 'CREATE TABLE b (id INTEGER PRIMARY KEY) STRICT; INSERT INTO a VALUES (1);',
};

test('each migration is applied once, in order', async () => {
  await using database = await emptyDatabase();
  expect(await migrate(database, [first])).toEqual(['0001_a']);
  expect(await migrate(database, [first, second])).toEqual(['0002_b']);
  expect(await migrate(database, [first, second])).toEqual([]);
  expect(await database.all<object>('SELECT id FROM a')).toEqual([{ id: 1 }]);
});

test('a migration that fails leaves nothing of itself behind, and those before it stay', async () => {
  await using database = await emptyDatabase();
  const broken = { name: '0002_broken', sql: 'CREATE TABLE b (id INTEGER) STRICT; INSERT INTO no_such VALUES (1);' };
  await expect(migrate(database, [first, broken])).rejects.toThrow('no_such');
  expect(await database.all<object>('SELECT name FROM schema_migrations')).toEqual([{ name: '0001_a' }]);
  expect(await migrate(database, [first, second])).toEqual(['0002_b']);
});

test('processes that migrate at once do not disturb each other', async () => {
  await using database = await emptyDatabase();
  const applied = await Promise.all([1, 2, 3].map(() => migrate(database, [first, second])));
  expect(applied.flat().toSorted()).toEqual(['0001_a', '0002_b']);
});

test('a database of a newer version is refused by name, and nothing is changed', async () => {
  await using database = await emptyDatabase();
  await migrate(database, [first, second]);
  await expect(migrate(database, [first])).rejects.toThrow(/0002_b.*newer version/);
});

test('a database of another build is refused', async () => {
  await using database = await emptyDatabase();
  await migrate(database, [first, second]);
  await expect(migrate(database, [first, { ...second, name: '0002_c' }])).rejects.toThrow(/0002_b.*0002_c/);
});

test('a migration that was edited after it was applied is refused', async () => {
  await using database = await emptyDatabase();
  await migrate(database, [first]);
  const edited = { ...first, sql: 'CREATE TABLE a (id TEXT PRIMARY KEY) STRICT;' };
  await expect(migrate(database, [edited, second])).rejects.toThrow('0001_a was edited');
  const commented = { ...first, sql: `-- a comment; nothing else\r\n${first.sql}\n` };
  expect(await migrate(database, [commented])).toEqual([]);
});

test('a migration is cut at the semicolons that end statements', () => {
  expect(
    statementsIn("-- it's; a comment\nINSERT INTO t VALUES ('a;''b--', \"c;\", 1 - 2); -- end\n\nSELECT 1"),
  ).toEqual(["INSERT INTO t VALUES ('a;''b--', \"c;\", 1 - 2)", 'SELECT 1']);
  expect(statementsIn(' ; \n-- nothing\n')).toEqual([]);
});

test('every migration file is in the list, in the order of its number', async () => {
  const files = (await readdir(path.join(import.meta.dir, '../../src/db/migrations'))).toSorted();
  expect(migrations.map((migration) => `${migration.name}.sql`)).toEqual(files);
  expect(files.map((file) => Number(file.slice(0, 4)))).toEqual(files.map((_, index) => index + 1));
});

test('the schema is what the snapshot shows', async () => {
  await using database = await testDatabase();
  const rows = await database.all<{ sql: string }>(
    'SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY type DESC, name',
  );
  expect(rows.map((row) => `${row.sql.replace(/[ \t]+/g, ' ')};`).join('\n\n')).toMatchSnapshot();
});

test('every table is STRICT, and every foreign key names a table that exists', async () => {
  await using database = await testDatabase();
  const tables = await database.all<{ name: string; strict: number }>(
    "SELECT name, strict FROM pragma_table_list WHERE schema = 'main' AND name NOT LIKE 'sqlite_%'",
  );
  expect(tables.length).toBeGreaterThan(10);
  expect(tables.filter((table) => table.strict === 0)).toEqual([]);
  const keys = await database.all<{ target: string }>(
    'SELECT DISTINCT k."table" AS target FROM sqlite_schema AS s, pragma_foreign_key_list(s.name) AS k WHERE s.type = \'table\'',
  );
  const names = new Set(tables.map((table) => table.name));
  expect(keys.filter((key) => !names.has(key.target))).toEqual([]);
});
