/**
 * The port to what Slipway connects to. Only source-code hosts have an adapter so far (`git`).
 * An adapter holds no state of its own beyond caches on disk; credentials are passed to each call.
 */
export interface SourceProvider {
  readonly id: string;
  /**
   * The one form of a repository's URL in which it is stored and compared. Throws `Fault('invalid', …)` with an issue
   * at `url` for one that this provider does not read, or that holds a credential.
   */
  cloneUrl(url: string): string;
  /**
   * Looks the repository up with the credential and answers what to store.
   * Throws `Fault('bad_gateway', 'integration_refresh_failed', …)` when it cannot be reached or read.
   */
  discover(url: string, token: string | null): Promise<DiscoveredRepository>;
  /**
   * Brings the cached mirror up to date and opens one commit of it for a sandbox.
   * Concurrent calls for one repository wait for each other. Throws `RepositoryUnavailable`.
   */
  checkout(repository: RepositorySource, token: string | null): Promise<Checkout>;
}

export interface DiscoveredRepository {
  /** `owner/name` where the URL has such a form, else the last path segment. */
  readonly fullName: string;
  readonly defaultBranch: string;
  readonly private: boolean;
}

export interface RepositorySource {
  readonly id: string;
  readonly fullName: string;
  readonly cloneUrl: string;
  readonly defaultBranch: string;
}

export interface Checkout {
  readonly branch: string;
  /** Full object name of the commit. */
  readonly commit: string;
  /**
   * A tar stream of a `.git` directory with full history, whose HEAD is `branch` at `commit` and whose origin is the
   * repository's clone URL without a credential. No work tree: that is made inside the sandbox by `git reset --hard`.
   */
  open(): ReadableStream<Uint8Array>;
}

/** The repository cannot be read now. `message` is one sentence with the mend and holds no credential. */
export class RepositoryUnavailable extends Error {
  override readonly name = 'RepositoryUnavailable';
}
