import { describe, expect, test } from 'bun:test';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { Glob } from 'bun';

/**
 * Who may import whom: the table of the architecture page, as it holds for what is built. Type-only imports count.
 */
const root = path.join(import.meta.dir, '../../src');

interface Edge {
  readonly from: string;
  /** A path below src for our own files, else the package's name. */
  readonly to: string;
}

/** Static, type-only, re-export and dynamic imports; Bun.Transpiler would drop the type-only ones. */
const specifier = /(?:^|[;}\s])(?:from|import)\s*\(?\s*['"]([^'"\n]+)['"]/g;
const withoutComments = (text: string) => text.replace(/^\s*(?:\/\/|\/?\*).*$/gm, '');

const files = [...new Glob('**/*.{ts,tsx,mjs}').scanSync(root)].map((file) => ({
  name: file,
  text: readFileSync(path.join(root, file), 'utf8'),
}));
const names = new Set(files.map((file) => file.name));
const edges: Edge[] = files.flatMap(({ name, text }) =>
  [...withoutComments(text).matchAll(specifier)]
    .map(([, to = '']) => ({ from: name, to: to.startsWith('.') ? path.join(path.dirname(name), to) : to }))
    // What is no file of ours and no package stands in a text that is written out, such as the demo's sample.
    .filter((edge) => !/\.[jt]s$/.test(edge.to) || names.has(edge.to)),
);

const folderOf = (file: string) => (file.includes('/') ? file.slice(0, file.indexOf('/')) : '');
const within = (file: string, ...folders: string[]) => folders.includes(folderOf(file));
const isOurs = (file: string) => names.has(file);
const sameFolder = (edge: Edge) => isOurs(edge.to) && folderOf(edge.from) === folderOf(edge.to);
const isSchema = (file: string) => path.basename(file) === 'schema.ts';
/** Where adapters are handed to the code that uses them: the composition root, and commands that need no server. */
const composes = (file: string) => file === 'compose.ts' || within(file, 'cli', 'demo');
const ports = new Set([
  'db/database.ts',
  'sandbox/sandbox.ts',
  'harness/harness.ts',
  'egress/egress.ts',
  'gateway/gateway.ts',
  'integrations/provider.ts',
]);
const adapters =
  /^(db\/(sqlite|postgres|migrate)|sandbox\/(docker|dummy)[^/]*|harness\/(codex|claude|opencode|dummy)[^/]*|integrations\/(git|github|slack|sentry|discord)[^/]*|egress\/(proxy|session)|gateway\/(server|exchange))\.ts$/;
/** The dummies share a schema: the script that a prompt holds. */
const isAdapter = (file: string) => adapters.test(file) && !file.endsWith('-schema.ts');
const isPackage = (edge: Edge, ...packages: string[]) =>
  packages.some((name) => edge.to === name || edge.to.startsWith(`${name}/`));

const rules: [name: string, broken: (edge: Edge) => boolean][] = [
  ['kernel imports nothing of ours', (e) => within(e.from, 'kernel') && isOurs(e.to) && !within(e.to, 'kernel')],
  [
    'a schema imports zod, kernel, schemas, a port and its own pure neighbours',
    (e) =>
      isSchema(e.from) &&
      (isOurs(e.to)
        ? !within(e.to, 'kernel') &&
          !isSchema(e.to) &&
          !ports.has(e.to) &&
          (!sameFolder(e) || /\/(store|service|operations)\.ts$/.test(e.to))
        : e.to !== 'zod' && !e.to.startsWith('node:')),
  ],
  [
    'a store imports the database port, kernel, schemas and its own neighbours, never its service',
    (e) =>
      e.from.endsWith('/store.ts') &&
      isOurs(e.to) &&
      !within(e.to, 'kernel') &&
      !isSchema(e.to) &&
      e.to !== 'db/database.ts' &&
      (!sameFolder(e) || /\/(service|operations)\.ts$/.test(e.to)),
  ],
  ['a store is private to its module', (e) => e.to.endsWith('/store.ts') && !sameFolder(e) && !composes(e.from)],
  [
    'rules and runner know nothing of http',
    (e) => (e.from.endsWith('/service.ts') || within(e.from, 'runner', 'triggers', 'notify')) && within(e.to, 'http'),
  ],
  [
    'only operations, pages and the composition use http',
    (e) =>
      within(e.to, 'http') &&
      !within(e.from, 'http', 'app', 'mcp') &&
      !e.from.endsWith('/operations.ts') &&
      !composes(e.from),
  ],
  ['http knows kernel alone', (e) => within(e.from, 'http') && isOurs(e.to) && !within(e.to, 'http', 'kernel')],
  [
    'operations reach no store of another module and no adapter',
    (e) => e.from.endsWith('/operations.ts') && isAdapter(e.to),
  ],
  [
    'an adapter is imported by its neighbours and the composition',
    (e) => isAdapter(e.to) && !sameFolder(e) && !composes(e.from),
  ],
  [
    'nobody imports the composition, the commands or the demo',
    (e) =>
      (e.to === 'compose.ts' || within(e.to, 'cli', 'demo')) && !within(e.from, 'cli', 'demo') && e.from !== 'main.ts',
  ],
  ['bun:sqlite only in db', (e) => isPackage(e, 'bun:sqlite') && !within(e.from, 'db')],
  ['elysia only in http', (e) => isPackage(e, 'elysia', '@elysiajs') && !within(e.from, 'http')],
  [
    'dockerode only where sandboxes and their image are made',
    (e) => isPackage(e, 'dockerode') && !/^sandbox\/(docker|image)[^/]*\.ts$/.test(e.from),
  ],
  ['certificates only in egress', (e) => isPackage(e, '@peculiar/x509') && !within(e.from, 'egress')],
];

describe('who may import whom', () => {
  test('the scan finds the code', () => {
    expect(files.length).toBeGreaterThan(20);
    expect(edges.length).toBeGreaterThan(30);
    expect(edges.filter((edge) => isOurs(edge.to)).length).toBeGreaterThan(30);
    expect(edges).toContainEqual({ from: 'harness/harness.ts', to: 'runs/schema.ts' });
  });

  test.each(rules)('%s', (_, broken) => {
    expect(edges.filter(broken).map((edge) => `${edge.from} → ${edge.to}`)).toEqual([]);
  });

  test('there is no cycle', () => {
    const imports = Map.groupBy(
      edges.filter((edge) => isOurs(edge.to)),
      (edge) => edge.from,
    );
    const done = new Set<string>();
    const cycleFrom = (file: string, trail: readonly string[]): readonly string[] | undefined => {
      if (trail.includes(file)) return [...trail.slice(trail.indexOf(file)), file];
      if (done.has(file)) return undefined;
      for (const { to } of imports.get(file) ?? []) {
        const cycle = cycleFrom(to, [...trail, file]);
        if (cycle) return cycle;
      }
      done.add(file);
      return undefined;
    };
    expect([...names].map((file) => cycleFrom(file, [])).find((cycle) => cycle !== undefined)).toBeUndefined();
  });
});

test('only the settings read the environment', () => {
  const allowed = new Set(['config.ts', 'build.ts', 'demo/bootstrap.mjs']);
  const readers = files.filter(({ text }) => /\b(?:process|Bun)\.env\b/.test(withoutComments(text)));
  expect(readers.map((file) => file.name).filter((name) => !allowed.has(name))).toEqual([]);
});

test('no source file is longer than 300 lines', () => {
  expect(files.filter(({ text }) => text.split('\n').length > 301).map((file) => file.name)).toEqual([]);
});
