import type { Database } from './database.ts';

/** What the installation remembers about itself, by name. */
export function settingStore(database: Database) {
  const find = async (name: string): Promise<string | undefined> =>
    (await database.one<{ value: string }>('SELECT value FROM settings WHERE name = ?', name))?.value;
  return {
    find,

    /** Keeps the value where the name has none yet; answers the value that is kept. */
    async keepFirst(name: string, value: string): Promise<string> {
      const kept = await find(name);
      if (kept !== undefined) return kept;
      await database.write((tx) =>
        tx.run('INSERT INTO settings (name, value) VALUES (?, ?) ON CONFLICT (name) DO NOTHING', name, value),
      );
      return (await find(name)) ?? value;
    },
  };
}
