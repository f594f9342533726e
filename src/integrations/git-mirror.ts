import { mkdir, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { z } from 'zod';
import { newId } from '../kernel/id.ts';
import { type Git, GitFailure, type GitRemote } from './git-command.ts';
import { type Refs, readRefs, sameRefs } from './git-refs.ts';

/** The last good state of a mirror: what was fetched, and the files that hold it. */
export interface Mirror {
  readonly directory: string;
  readonly refs: Refs;
  /** Names and sizes of the files in `objects/pack`, and of `shallow` where the origin itself is cut off. */
  readonly files: readonly (readonly [file: string, bytes: number])[];
}

export interface MirrorStore {
  /**
   * Brings the mirror to what the origin has just advertised and answers its state. Not to be called for one
   * repository twice at a time. Throws `GitFailure`.
   */
  update(repositoryId: string, remote: GitRemote, advertised: Refs): Promise<Mirror>;
  /** The state as it was left last, or undefined where there is none that can be used. */
  read(repositoryId: string, cloneUrl: string): Promise<Mirror | undefined>;
  /** Removes half-made mirrors, and those of repositories that are not among the known ones. */
  sweep(knownIds: ReadonlySet<string>): Promise<void>;
}

const Manifest = z.object({
  form: z.literal(1),
  cloneUrl: z.string(),
  refs: z.array(z.tuple([z.string(), z.string()])),
  files: z.array(z.tuple([z.string(), z.int()])),
});

const manifestFile = 'slipway.json';
const localMs = 60_000;
/** More packs than this are combined, small ones first. */
const mostPacks = 16;

/** What a failing fetch says about the way to the origin. Anything else may be a mirror that is broken. */
const outside: ReadonlySet<string> = new Set([
  ...['git_missing', 'refused', 'redirected', 'untrusted_certificate', 'unreachable', 'timed_out', 'disk_full'],
]);

/**
 * Bare mirrors of branches and tags in `directory`, one `<repositoryId>.git` each. A mirror appears under its name only
 * when it is whole, and its manifest is written last, so that a process killed at any point leaves a mirror that is
 * either right or known to be wrong; a wrong one is cloned anew.
 */
export function mirrorStore(directory: string, git: Git, fetchMs: number): MirrorStore {
  const placeOf = (repositoryId: string) => {
    if (!/^[\w-]+$/.test(repositoryId)) throw new Error('A repository id is not a file name');
    return path.join(directory, `${repositoryId}.git`);
  };

  async function fetchInto(place: string, remote: GitRemote): Promise<void> {
    const refspecs = ['+refs/heads/*:refs/heads/*', '+refs/tags/*:refs/tags/*'];
    const flags = ['--quiet', '--prune', '--no-tags', '--update-shallow', '--no-write-fetch-head'];
    await git(['fetch', ...flags, '--end-of-options', remote.url.cloneUrl, ...refspecs], {
      repository: place,
      remote,
      timeoutMs: fetchMs,
    });
  }

  async function save(place: string, cloneUrl: string): Promise<Mirror> {
    const format = '--format=%(objectname) %(refname)';
    const refs = readRefs(await git(['for-each-ref', format], { repository: place, timeoutMs: localMs }));
    const files = await filesOf(place);
    const manifest = { form: 1, cloneUrl, refs: [...refs], files } satisfies z.input<typeof Manifest>;
    const fresh = path.join(place, `${manifestFile}.${newId()}`);
    await writeFile(fresh, JSON.stringify(manifest), { mode: 0o600 });
    await rename(fresh, path.join(place, manifestFile));
    return { directory: place, refs, files };
  }

  async function clone(place: string, remote: GitRemote, objectFormat: string): Promise<Mirror> {
    const fresh = `${place}.${newId()}`;
    try {
      await mkdir(fresh, { recursive: true, mode: 0o700 });
      const init = ['init', '--quiet', '--bare', '--template=', `--object-format=${objectFormat}`];
      await git(init, { repository: fresh, timeoutMs: localMs });
      await fetchInto(fresh, remote);
      await git(['pack-refs', '--all', '--prune'], { repository: fresh, timeoutMs: localMs });
      await save(fresh, remote.url.cloneUrl);
      await rm(place, { recursive: true, force: true });
      await rename(fresh, place);
    } finally {
      await rm(fresh, { recursive: true, force: true });
    }
    const made = await read(place, remote.url.cloneUrl);
    if (!made) throw new GitFailure('other', 'a new mirror could not be read back');
    return made;
  }

  async function renew(mirror: Mirror, remote: GitRemote): Promise<Mirror> {
    await dropLeftovers(mirror.directory);
    await fetchInto(mirror.directory, remote);
    const packs = (await packsOf(mirror.directory)).filter((name) => name.endsWith('.pack'));
    if (packs.length > mostPacks) {
      // Combines whole packs, so that commits which no branch names any more stay for checkouts that were begun.
      await git(['repack', '--quiet', '-d', '--geometric=2'], { repository: mirror.directory, timeoutMs: fetchMs });
    }
    return save(mirror.directory, remote.url.cloneUrl);
  }

  return {
    async update(repositoryId, remote, advertised) {
      const place = placeOf(repositoryId);
      const mirror = await read(place, remote.url.cloneUrl);
      if (mirror && sameRefs(mirror.refs, advertised)) return mirror;
      if (mirror) {
        try {
          return await renew(mirror, remote);
        } catch (error) {
          if (!(error instanceof GitFailure) || outside.has(error.problem)) throw error;
        }
      }
      const sample = advertised.values().next().value ?? '';
      return clone(place, remote, sample.length === 64 ? 'sha256' : 'sha1');
    },

    read: (repositoryId, cloneUrl) => read(placeOf(repositoryId), cloneUrl),

    async sweep(knownIds) {
      const known = new Set([...knownIds].map((id) => `${id}.git`));
      const entries = await readdir(directory).catch(() => []);
      const stale = entries.filter((entry) => entry.includes('.git') && !known.has(entry));
      await Promise.all(stale.map((entry) => rm(path.join(directory, entry), { recursive: true, force: true })));
    },
  };
}

/** Undefined also where a file of it is gone or was cut short. */
async function read(place: string, cloneUrl: string): Promise<Mirror | undefined> {
  const text = await readFile(path.join(place, manifestFile), 'utf8').catch(() => undefined);
  const manifest = Manifest.safeParse(text === undefined ? undefined : parsed(text)).data;
  if (!manifest || manifest.cloneUrl !== cloneUrl) return undefined;
  const sizes = await Promise.all(manifest.files.map(([file]) => sizeOf(path.join(place, file))));
  if (manifest.files.some(([, bytes], position) => sizes[position] !== bytes)) return undefined;
  return { directory: place, refs: new Map(manifest.refs), files: manifest.files };
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

const sizeOf = async (file: string): Promise<number | undefined> => (await stat(file).catch(() => undefined))?.size;

const packsOf = async (place: string): Promise<string[]> =>
  (await readdir(path.join(place, 'objects/pack')).catch(() => [])).filter((name) =>
    /^pack-.*\.(?:pack|idx)$/.test(name),
  );

async function filesOf(place: string): Promise<[string, number][]> {
  const names = [...(await packsOf(place)).map((name) => `objects/pack/${name}`), 'shallow'];
  const sizes = await Promise.all(names.map((name) => sizeOf(path.join(place, name))));
  return names.flatMap((name, position): [string, number][] => {
    const bytes = sizes[position];
    return bytes === undefined ? [] : [[name, bytes]];
  });
}

/** A git that was killed leaves half packs behind, which nothing else would ever remove. */
async function dropLeftovers(place: string): Promise<void> {
  const folder = path.join(place, 'objects/pack');
  const names = await readdir(folder).catch(() => []);
  const leftovers = names.filter((name) => name.startsWith('tmp_') || name.startsWith('.tmp-'));
  await Promise.all(leftovers.map((name) => rm(path.join(folder, name), { force: true })));
}
