/** Where things are inside a sandbox. */
export const places = {
  workspace: '/workspace',
  /** Files that are written anew for each turn. */
  turn: '/state/turn',
  gitConfig: '/state/turn/gitconfig',
  gateway: 'http://127.0.0.1:3129',
} as const;

/** One directory a repository under the workspace, named as the repository is; doubles get a number. */
export function repositoryPaths(fullNames: readonly string[]): string[] {
  const taken = new Set<string>();
  return fullNames.map((fullName) => {
    const last = fullName.split('/').at(-1) ?? '';
    const base = last.replace(/[^A-Za-z0-9._-]/g, '-').replace(/^[.-]+/, '') || 'repository';
    let name = base;
    for (let n = 2; taken.has(name.toLowerCase()); n += 1) name = `${base}-${n}`;
    taken.add(name.toLowerCase());
    return `${places.workspace}/${name}`;
  });
}
