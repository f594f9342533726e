import { describe, expect, test } from 'bun:test';
import type { Database } from '../../src/db/database.ts';

type Opened = Database & AsyncDisposable;

/** What every adapter of the database port promises. `open` gives an empty database each time. */
export function databaseConformance(engine: string, open: () => Promise<Opened>): void {
  const withItems = async (): Promise<Opened> => {
    const database = await open();
    await database.write((tx) =>
      tx.run('CREATE TABLE items (id BIGINT PRIMARY KEY, name TEXT UNIQUE, size BIGINT, share DOUBLE PRECISION)'),
    );
    return database;
  };
  const add = (database: Database, id: number, name: string | null = `item ${id}`) =>
    database.write((tx) => tx.run('INSERT INTO items (id, name) VALUES (?, ?)', id, name));
  const ids = async (database: Database) =>
    (await database.all<{ id: number }>('SELECT id FROM items ORDER BY id')).map((row) => row.id);

  describe(`database port on ${engine}`, () => {
    test('a write is readable as soon as it has resolved, and answers its work', async () => {
      await using database = await withItems();
      const answer = await database.write(async (tx) => {
        await tx.run('INSERT INTO items (id, name) VALUES (?, ?)', 1, 'one');
        return 'answer';
      });
      expect(answer).toBe('answer');
      expect(await database.one<object>('SELECT id, name, size FROM items')).toEqual({
        id: 1,
        name: 'one',
        size: null,
      });
    });

    test('a read sees every write that was awaited before it, though reads came before and between', async () => {
      await using database = await withItems();
      for (const id of [1, 2, 3]) {
        await add(database, id);
        expect(await ids(database)).toHaveLength(id);
      }
    });

    test('a read that came during a write does not hide it from the reads after it', async () => {
      await using database = await withItems();
      await database.write(async (tx) => {
        await tx.run('INSERT INTO items (id) VALUES (1)');
        expect(await ids(database)).toEqual([]);
      });
      expect(await ids(database)).toEqual([1]);
    });

    test('a read that fails takes no other read along', async () => {
      await using database = await withItems();
      await add(database, 1);
      const outcomes = await Promise.allSettled([
        ids(database),
        database.one('SELECT id FROM no_such_table'),
        database.one('SELECT id FROM items WHERE id = ? AND size = ?', 1),
        ids(database),
      ]);
      expect(outcomes.map((outcome) => outcome.status)).toEqual(['fulfilled', 'rejected', 'rejected', 'fulfilled']);
      await add(database, 2);
      expect(await ids(database)).toEqual([1, 2]);
    });

    test('one answers undefined and all an empty list where there is no row', async () => {
      await using database = await withItems();
      expect(await database.one('SELECT id FROM items')).toBeUndefined();
      expect(await database.all('SELECT id FROM items')).toEqual([]);
    });

    test('an open write is seen by its own transaction and by nobody else', async () => {
      await using database = await withItems();
      const inside = Promise.withResolvers<void>();
      const goOn = Promise.withResolvers<void>();
      const writing = database.write(async (tx) => {
        await tx.run('INSERT INTO items (id) VALUES (1)');
        expect(await tx.all('SELECT id FROM items')).toHaveLength(1);
        inside.resolve();
        await goOn.promise;
      });
      await inside.promise;
      expect(await ids(database)).toEqual([]);
      goOn.resolve();
      await writing;
      expect(await ids(database)).toEqual([1]);
    });

    test('a throw rolls everything back and is passed on', async () => {
      await using database = await withItems();
      const reason = new Error('no');
      const failing = database.write(async (tx) => {
        await tx.run('INSERT INTO items (id) VALUES (1)');
        await tx.run('INSERT INTO items (id) VALUES (2)');
        throw reason;
      });
      expect(await failing.catch((error: unknown) => error)).toBe(reason);
      expect(await ids(database)).toEqual([]);
    });

    test('a failing transaction takes nothing else along', async () => {
      await using database = await withItems();
      const outcomes = await Promise.allSettled([
        add(database, 1),
        database.write(async (tx) => {
          await tx.run('INSERT INTO items (id) VALUES (2)');
          await tx.run('INSERT INTO no_such_table (id) VALUES (2)');
        }),
        add(database, 3),
      ]);
      expect(outcomes.map((outcome) => outcome.status)).toEqual(['fulfilled', 'rejected', 'fulfilled']);
      expect(await ids(database)).toEqual([1, 3]);
    });

    test('2000 claims at once get 2000 different rows', async () => {
      await using database = await withItems();
      const numbers = Array.from({ length: 2000 }, (_, index) => index + 1);
      await database.write(async (tx) => {
        for (const id of numbers) await tx.run('INSERT INTO items (id, size) VALUES (?, 0)', id);
      });
      const claim = () =>
        database.write(async (tx) => {
          const free = await tx.one<{ id: number }>(
            `SELECT id FROM items WHERE size = 0 ORDER BY id LIMIT 1 ${database.skipLocked}`,
          );
          if (free) await tx.run('UPDATE items SET size = 1 WHERE id = ?', free.id);
          return free?.id;
        });
      const claimed = await Promise.all(numbers.map(claim));
      expect(new Set(claimed).size).toBe(2000);
      expect(await claim()).toBeUndefined();
    }, 30_000);

    test('a write inside a write rejects and leaves the outer one whole', async () => {
      await using database = await withItems();
      await database.write(async (tx) => {
        await tx.run('INSERT INTO items (id) VALUES (1)');
        await expect(database.write(async () => undefined)).rejects.toThrow('write inside a write');
      });
      expect(await ids(database)).toEqual([1]);
    });

    test('what a write set off may write once the write is over', async () => {
      await using database = await withItems();
      const over = Promise.withResolvers<void>();
      let later: Promise<unknown> = Promise.resolve();
      await database.write(async () => {
        later = over.promise.then(() => add(database, 1));
      });
      over.resolve();
      await later;
      expect(await ids(database)).toEqual([1]);
    });

    test('a transaction that is kept beyond its end refuses to work', async () => {
      await using database = await withItems();
      const tx = await database.write(async (inner) => ({ run: inner.run, one: inner.one }));
      await expect(tx.run('INSERT INTO items (id) VALUES (1)')).rejects.toThrow('has ended');
      await expect(tx.one('SELECT id FROM items')).rejects.toThrow('has ended');
      expect(await ids(database)).toEqual([]);
    });

    test('a unique violation is told from other failures', async () => {
      await using database = await withItems();
      await add(database, 1, 'taken');
      const failure = (work: Promise<unknown>) => work.then(() => undefined).catch((error: unknown) => error);
      expect(database.isUniqueViolation(await failure(add(database, 2, 'taken')))).toBe(true);
      expect(database.isUniqueViolation(await failure(add(database, 1, 'other')))).toBe(true);
      expect(database.isUniqueViolation(await failure(database.all('SELECT * FROM no_such_table')))).toBe(false);
      expect(database.isUniqueViolation(new Error('UNIQUE constraint failed'))).toBe(false);
      expect(database.isUniqueViolation(undefined)).toBe(false);
    });

    test('null is distinct for UNIQUE, as the SQL standard has it', async () => {
      await using database = await withItems();
      await add(database, 1, null);
      await add(database, 2, null);
      expect(await ids(database)).toEqual([1, 2]);
    });

    test.each([0, -1, 2 ** 31, 2 ** 40 + 1, Number.MAX_SAFE_INTEGER, -Number.MAX_SAFE_INTEGER])(
      'the integer %p comes back as it went in, as a number',
      async (size) => {
        await using database = await withItems();
        await database.write((tx) => tx.run('INSERT INTO items (id, size) VALUES (1, ?)', size));
        expect(await database.one<object>('SELECT size FROM items WHERE size = ?', size)).toEqual({ size });
      },
    );

    test.each(['', 'naïve 🛰️ 漢字', "it's -- ; not $1 or ?", 'line\nline\ttab', 'x'.repeat(1_000_000)])(
      'text comes back as it went in (case %#)',
      async (name) => {
        await using database = await withItems();
        await add(database, 1, name);
        expect((await database.one<{ name: string }>('SELECT name FROM items'))?.name).toBe(name);
      },
    );

    test('REAL comes back as a number', async () => {
      await using database = await withItems();
      await database.write((tx) => tx.run('INSERT INTO items (id, share) VALUES (1, ?)', 0.1));
      expect(await database.one<object>('SELECT share FROM items')).toEqual({ share: 0.1 });
    });

    test('run answers how many rows it changed', async () => {
      await using database = await withItems();
      for (const id of [1, 2, 3]) await add(database, id);
      const change = (sql: string, ...values: number[]) => database.write((tx) => tx.run(sql, ...values));
      expect(await change('UPDATE items SET size = 1 WHERE id > ?', 1)).toBe(2);
      expect(await change('DELETE FROM items WHERE id = ?', 9)).toBe(0);
    });

    test('UPSERT and RETURNING work in a transaction', async () => {
      await using database = await withItems();
      await add(database, 1, 'old');
      const row = await database.write((tx) =>
        tx.one<object>(
          'INSERT INTO items (id, name) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET name = excluded.name RETURNING id, name',
          1,
          'new',
        ),
      );
      expect(row).toEqual({ id: 1, name: 'new' });
      expect(await database.one<object>('SELECT name FROM items')).toEqual({ name: 'new' });
    });

    test('too few and too many values are refused', async () => {
      await using database = await withItems();
      await expect(database.one('SELECT id FROM items WHERE id = ? AND size = ?', 1)).rejects.toThrow();
      await expect(database.one('SELECT id FROM items WHERE id = ?', 1, 2)).rejects.toThrow();
    });

    test('close waits for the writes that were begun, then every call rejects', async () => {
      await using database = await withItems();
      const goOn = Promise.withResolvers<void>();
      const writing = database.write(async (tx) => {
        await goOn.promise;
        return tx.run('INSERT INTO items (id) VALUES (1)');
      });
      let closed = false;
      const closing = database.close().then(() => {
        closed = true;
      });
      await expect(add(database, 2)).rejects.toThrow('closed');
      expect(closed).toBe(false);
      goOn.resolve();
      expect(await writing).toBe(1);
      await closing;
      await expect(database.one('SELECT 1')).rejects.toThrow('closed');
      await expect(database.all('SELECT 1')).rejects.toThrow('closed');
      await database.close();
    });
  });
}
