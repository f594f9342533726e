import path from 'node:path';
import { Fault } from '../kernel/fault.ts';
import { gitDirectoryTar } from './git-archive.ts';
import { GitFailure, type GitRemote, gitCommand } from './git-command.ts';
import { mirrorStore } from './git-mirror.ts';
import { sentenceOf } from './git-problem.ts';
import { type Advertised, readAdvertised, tipOf } from './git-refs.ts';
import { type Checkout, RepositoryUnavailable, type SourceProvider } from './provider.ts';
import { type RepositoryUrl, readRepositoryUrl, UnusableUrl } from './url.ts';

export interface GitProviderSettings {
  /** Mirrors are kept in `<dataDir>/mirrors`, git's own configuration in `<dataDir>/git`. */
  readonly dataDir: string;
  /** PEM file whose certificates are trusted beside the system's, or null. */
  readonly extraCa: string | null;
  /** The proxy through which a URL is reached, credentials included, or null for the direct way; none unless given. */
  proxyFor?(url: string): string | null;
  /** Loopback hosts for which plain `http://` will do. */
  allowsPlainHttp(host: string): boolean;
  /** How long asking an origin for its refs may take; 30 s unless given. */
  readonly listMs?: number;
  /** How long fetching may take; 15 min unless given. */
  readonly fetchMs?: number;
}

export interface GitProvider extends SourceProvider {
  /** To be called once at start: removes half-made mirrors and those of repositories that are gone. */
  sweep(knownRepositoryIds: ReadonlySet<string>): Promise<void>;
}

/**
 * Any git repository over `https://`, and `file://` for a path on this machine, read with the machine's own git. Branches
 * and tags with their full history are kept in a mirror; submodules are not followed. When nothing has changed at the
 * origin a checkout costs one `git ls-remote`.
 */
export function gitProvider(settings: GitProviderSettings): GitProvider {
  const { dataDir, extraCa, listMs = 30_000, fetchMs = 15 * 60_000 } = settings;
  const git = gitCommand({
    directory: path.join(dataDir, 'git'),
    extraCa,
    ...(settings.proxyFor ? { proxyFor: settings.proxyFor } : {}),
  });
  const mirrors = mirrorStore(path.join(dataDir, 'mirrors'), git, fetchMs);
  const oneAtATime = turns();

  const advertised = async (remote: GitRemote): Promise<Advertised> =>
    readAdvertised(
      await git(['ls-remote', '--symref', '--end-of-options', remote.url.cloneUrl], { remote, timeoutMs: listMs }),
    );

  return {
    id: 'git',

    cloneUrl: (text) => readUrl(text, unusable).cloneUrl,

    async discover(text, token) {
      const url = readUrl(text, unusable);
      const { head, refs } = await advertised({ url, token }).catch((error) => {
        throw unreadable(explained(error, url.fullName, url), error);
      });
      if (refs.size === 0) throw unreadable(`${url.fullName} has no commit yet: push one, then connect it.`);
      if (head === null) {
        throw unreadable(`${url.fullName} has no default branch: set one at its host, then connect it.`);
      }
      return { fullName: url.fullName, defaultBranch: head, private: token !== null || url.scheme === 'file' };
    },

    async checkout(repository, token): Promise<Checkout> {
      const { id, fullName, cloneUrl, defaultBranch } = repository;
      const url = readUrl(
        cloneUrl,
        (message) => new RepositoryUnavailable(`${fullName} cannot be fetched. ${message}`),
      );
      const [mirror, head] = await oneAtATime(id, async () => {
        try {
          const remote = { url, token };
          const { refs, head } = await advertised(remote);
          return [await mirrors.update(id, remote, refs), head] as const;
        } catch (cause) {
          throw new RepositoryUnavailable(explained(cause, fullName, url), { cause });
        }
      });
      const { refs } = mirror;
      const branch = tipOf(refs, defaultBranch) !== undefined || head === null ? defaultBranch : head;
      const commit = tipOf(refs, branch);
      if (commit === undefined) {
        throw new RepositoryUnavailable(
          `${fullName} has no branch ${defaultBranch}: push it, or connect the repository again.`,
        );
      }
      return {
        branch,
        commit,
        open: () =>
          gitDirectoryTar({ cloneUrl, branch, commit, refs }, (use) =>
            oneAtATime(id, async () => {
              const present = await mirrors.read(id, url.cloneUrl);
              if (!present)
                throw new RepositoryUnavailable(`The copy of ${fullName} was removed: start the run again.`);
              await use(present);
            }),
          ),
      };
    },

    sweep: mirrors.sweep,
  };

  function readUrl(text: string, refusal: (message: string) => Error): RepositoryUrl {
    try {
      return readRepositoryUrl(text, settings.allowsPlainHttp);
    } catch (error) {
      throw error instanceof UnusableUrl ? refusal(error.message) : error;
    }
  }
}

/** The sentence for a failure of git. Anything else is a bug and goes on as it is. */
function explained(error: unknown, fullName: string, url: RepositoryUrl): string {
  if (!(error instanceof GitFailure)) throw error;
  return sentenceOf(error.problem, fullName, url.scheme === 'file');
}

const unusable = (message: string) =>
  new Fault('invalid', 'invalid_request', message, { issues: [{ path: ['url'], message }] });

const unreadable = (message: string, cause?: unknown) =>
  new Fault('bad_gateway', 'integration_refresh_failed', message, { cause });

/** Runs the work of one key one after another, in the order of the calls. */
function turns() {
  const tails = new Map<string, Promise<unknown>>();
  return async <T>(key: string, work: () => Promise<T>): Promise<T> => {
    const turn = (tails.get(key) ?? Promise.resolve()).then(work, work);
    tails.set(key, turn);
    try {
      return await turn;
    } finally {
      if (tails.get(key) === turn) tails.delete(key);
    }
  };
}
