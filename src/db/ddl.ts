/**
 * Cuts a migration's text into its statements, without comments and line ends around them.
 *
 * Migrations are written in SQLite's dialect (STRICT tables, INTEGER for 64-bit numbers). This is the one place where
 * their text becomes what an engine is given, so it is where another engine's types are put in.
 */
export function statementsIn(migration: string): string[] {
  const statements: string[] = [];
  let statement = '';
  // A string, a quoted name, a comment, a semicolon, or a run of anything else: nothing is left unmatched.
  for (const [token] of migration.matchAll(/'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|;|[^'";-]+|-|'|"/g)) {
    if (token.startsWith('--')) continue;
    if (token !== ';') {
      statement += token;
      continue;
    }
    statements.push(statement.trim());
    statement = '';
  }
  return [...statements, statement.trim()].filter((text) => text !== '');
}
