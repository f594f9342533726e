import type { Database as Sqlite, Statement } from 'bun:sqlite';
import type { Value } from './database.ts';

/** Prepared statements of one connection, by their text. Preparing costs three times what running one costs. */
export interface Statements {
  get(sql: string): Statement<unknown, Value[]>;
  /** Releases them all; the connection cannot be closed before. */
  clear(): void;
}

/** The code has fewer texts than this: the bound is for texts that are put together from what was asked for. */
const mostKept = 500;

/** Keeps the statements of `connection`; where there are too many, the one prepared first goes. */
export function statementsOf(connection: Sqlite): Statements {
  const kept = new Map<string, Statement<unknown, Value[]>>();
  return {
    get(sql) {
      const known = kept.get(sql);
      if (known) return known;
      if (kept.size >= mostKept) {
        const [oldest, statement] = kept.entries().next().value ?? [];
        if (oldest !== undefined) kept.delete(oldest);
        statement?.finalize();
      }
      const statement = connection.prepare<unknown, Value[]>(sql);
      kept.set(sql, statement);
      return statement;
    },
    clear() {
      for (const statement of kept.values()) statement.finalize();
      kept.clear();
    },
  };
}
