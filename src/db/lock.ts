import { Database as Sqlite } from 'bun:sqlite';

/**
 * Takes the lock of a data directory for as long as this process lives, or until it is released: two servers on one
 * directory would take each other's runs. The operating system gives it back when the process ends, however it ends.
 * Answers undefined when another process holds it.
 */
export function takeLock(file: string): { release(): void } | undefined {
  const lock = new Sqlite(file, { create: true });
  try {
    lock.run('PRAGMA locking_mode = EXCLUSIVE');
    lock.run('BEGIN EXCLUSIVE');
    return { release: () => lock.close() };
  } catch (error) {
    lock.close();
    if ((error as { code?: unknown }).code === 'SQLITE_BUSY') return undefined;
    throw error;
  }
}
