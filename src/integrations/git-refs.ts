/** Branches and tags by full name (`refs/heads/…`, `refs/tags/…`), each with the object that it names. */
export type Refs = ReadonlyMap<string, string>;

export interface Advertised {
  /** Short name of the branch that HEAD stands for, or null where it stands for none. */
  readonly head: string | null;
  readonly refs: Refs;
}

const branchPrefix = 'refs/heads/';
const objectName = /^(?:[0-9a-f]{40}|[0-9a-f]{64})$/;

/** Reads what `git ls-remote --symref` prints. Peeled tags, pull requests and the like are left out. */
export function readAdvertised(output: string): Advertised {
  const refs = new Map<string, string>();
  let pointer: string | undefined;
  let commit: string | undefined;
  for (const line of output.split('\n')) {
    const [value = '', name = ''] = line.split('\t');
    if (name === 'HEAD' && value.startsWith(`ref: ${branchPrefix}`)) pointer = value.slice('ref: '.length);
    else if (name === 'HEAD') commit = value;
    else if (objectName.test(value) && isKept(name)) refs.set(name, value);
  }
  return { head: headOf(pointer, commit, refs), refs };
}

/** Reads lines of `<object> <name>`. */
export function readRefs(output: string): Refs {
  const pairs = output.split('\n').map((line): [string, string] => {
    const space = line.indexOf(' ');
    return [line.slice(space + 1), line.slice(0, space)];
  });
  return new Map(pairs.filter(([name, value]) => objectName.test(value) && isKept(name)));
}

export const sameRefs = (one: Refs, other: Refs): boolean =>
  one.size === other.size && [...one].every(([name, value]) => other.get(name) === value);

/** The object that a branch is at, or undefined where there is no such branch. */
export const tipOf = (refs: Refs, branch: string): string | undefined => refs.get(branchPrefix + branch);

/** Every branch by its short name. */
export const branchesOf = (refs: Refs): [branch: string, commit: string][] =>
  [...refs].flatMap(([name, value]) =>
    name.startsWith(branchPrefix) ? [[name.slice(branchPrefix.length), value] as [string, string]] : [],
  );

const isKept = (name: string): boolean =>
  (name.startsWith(branchPrefix) || name.startsWith('refs/tags/')) && !name.endsWith('^{}');

/**
 * The branch of a HEAD. One that names no branch (a work tree where a commit is checked out, a host whose default
 * branch was deleted) is the branch at the same commit, or the only branch there is.
 */
function headOf(pointer: string | undefined, commit: string | undefined, refs: Refs): string | null {
  if (pointer !== undefined && refs.has(pointer)) return pointer.slice(branchPrefix.length);
  const branches = branchesOf(refs);
  const candidates = commit === undefined ? branches : branches.filter(([, tip]) => tip === commit);
  const usual = candidates.find(([name]) => name === 'main' || name === 'master');
  return usual?.[0] ?? (candidates.length === 1 ? (candidates[0]?.[0] ?? null) : null);
}
