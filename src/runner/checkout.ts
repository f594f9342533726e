import { type Checkout, RepositoryUnavailable } from '../integrations/provider.ts';
import type { CheckedOut } from '../runs/row.ts';
import type { SandboxArchive } from '../sandbox/sandbox.ts';
import { TurnFailure } from './failure.ts';
import { checkoutFailedCode } from './outcome.ts';
import { places, repositoryPaths } from './places.ts';

/** A repository of the run, and how to bring it here. */
export interface RunRepository {
  readonly id: string;
  readonly fullName: string;
  readonly cloneUrl: string;
  checkout(): Promise<Checkout>;
}

/** Gives git inside the sandbox a placeholder where a repository has a credential. */
export interface GitCredential {
  readonly cloneUrl: string;
  readonly username: string;
  readonly placeholder: string;
}

export interface PreparedCheckout {
  readonly checkouts: readonly CheckedOut[];
  /** The `.git` directories; the work trees are made inside, by `wrapped`. */
  readonly archives: readonly SandboxArchive[];
}

/** Brings every mirror up to date, side by side, and opens the commits. Throws `TurnFailure`. */
export async function prepareCheckout(repositories: readonly RunRepository[]): Promise<PreparedCheckout> {
  const paths = repositoryPaths(repositories.map((repository) => repository.fullName));
  const opened = await Promise.all(
    repositories.map(async (repository) => {
      try {
        return await repository.checkout();
      } catch (error) {
        if (!(error instanceof RepositoryUnavailable)) throw error;
        throw new TurnFailure('repository_unavailable', error.message, error);
      }
    }),
  );
  const checkouts = repositories.map((repository, index) => ({
    repositoryId: repository.id,
    fullName: repository.fullName,
    path: paths[index] ?? places.workspace,
    branch: opened[index]?.branch ?? '',
    commit: opened[index]?.commit ?? '',
  }));
  return {
    checkouts,
    archives: opened.map((checkout, index) => ({ path: `${paths[index]}/.git`, open: () => checkout.open() })),
  };
}

/**
 * The harness's command, after the work trees were made. Git runs inside the sandbox, so that what a repository's
 * attributes and links can do, they do there.
 */
export function wrapped(command: readonly string[], freshPaths: readonly string[]): string[] {
  if (freshPaths.length === 0) return [...command];
  const resets = freshPaths.map((path) => `git -C '${path}' reset --hard --quiet || exit ${checkoutFailedCode}`);
  return ['/bin/sh', '-c', `${resets.join('\n')}\nexec "$@"`, 'agent', ...command];
}

/** Git's settings inside the sandbox: who commits, and placeholders for the repositories that need a credential. */
export function gitConfig(credentials: readonly GitCredential[]): string {
  const helpers = credentials.map(
    ({ cloneUrl, username, placeholder }) =>
      `[credential "${quoted(cloneUrl)}"]\n\thelper = "!f() { test \\"$1\\" = get && echo username=${username} && echo password=${placeholder}; }; f"\n`,
  );
  return [
    '[user]\n\tname = Slipway\n\temail = agent@slipway.invalid\n',
    '[safe]\n\tdirectory = *\n',
    '[init]\n\tdefaultBranch = main\n',
    // Two repositories of one host may have different credentials.
    '[credential]\n\tuseHttpPath = true\n',
    ...helpers,
  ].join('');
}

const quoted = (text: string): string => text.replaceAll('\\', '\\\\').replaceAll('"', '\\"');
