import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { getCACertificates } from 'node:tls';
import { newId } from '../kernel/id.ts';
import { type GitProblem, problemOf } from './git-problem.ts';
import type { RepositoryUrl } from './url.ts';

export interface GitSettings {
  /** Directory for the configuration that git is given in place of the machine's and the user's. */
  readonly directory: string;
  /** PEM file whose certificates are trusted beside the system's, or null. */
  readonly extraCa: string | null;
  /** The proxy through which a URL is reached, credentials included, or null for the direct way; none unless given. */
  proxyFor?(url: string): string | null;
}

/** What a command may reach: one repository, with a token or without. */
export interface GitRemote {
  readonly url: RepositoryUrl;
  readonly token: string | null;
}

export interface GitCall {
  /** The repository that the command works in, or undefined for one that needs none. */
  readonly repository?: string;
  readonly remote?: GitRemote;
  readonly timeoutMs: number;
}

/** Runs git and answers its standard output. Throws `GitFailure`. */
export type Git = (args: readonly string[], call: GitCall) => Promise<string>;

/** A git command failed. `detail` is git's own text: for the log of a developer, never for a user. */
export class GitFailure extends Error {
  override readonly name = 'GitFailure';
  readonly problem: GitProblem;
  readonly detail: string;

  constructor(problem: GitProblem, detail: string) {
    super(`git failed: ${problem}`);
    this.problem = problem;
    this.detail = detail;
  }
}

/** An answer longer than this is no list of refs but an attack on our memory. */
const longestOutputBytes = 256 * 1024 * 1024;
const longestErrorBytes = 64 * 1024;

/**
 * Git's commands, cut off from everything around the server: no system or user configuration, no hooks, no prompt, no
 * credential helper, no redirect, and no protocol but the one of the repository's own URL. A token is handed over in
 * the environment, where only this user can read it, and git sends it to the URL's own origin alone.
 */
export function gitCommand(settings: GitSettings): Git {
  let prepared: Promise<string[][]> | undefined;

  return async (args, { repository, remote, timeoutMs }) => {
    const program = Bun.which('git');
    if (program === null) throw new GitFailure('git_missing', 'no git in PATH');
    prepared ??= prepare(settings);
    const fixed = await prepared.catch((error) => {
      prepared = undefined;
      throw error;
    });
    const child = Bun.spawn([program, ...args], {
      cwd: repository ?? settings.directory,
      env: {
        ...surroundings(settings, program),
        ...(repository === undefined ? {} : { GIT_DIR: repository }),
        GIT_ALLOW_PROTOCOL: remote?.url.scheme ?? 'none',
        ...configuration([...fixed, ...authorization(remote), ...proxy(settings, remote)]),
      },
      stdin: 'ignore',
      stdout: 'pipe',
      stderr: 'pipe',
      // A process group of its own, so that its helpers can be ended with it.
      detached: true,
    });
    let stoppedFor: GitProblem | undefined;
    const stop = (problem: GitProblem) => {
      stoppedFor ??= problem;
      killGroup(child.pid);
    };
    const timer = setTimeout(() => stop('timed_out'), timeoutMs);
    try {
      const [output, errors, exitCode] = await Promise.all([
        readText(child.stdout, longestOutputBytes, () => stop('other')),
        readText(child.stderr, longestErrorBytes, () => {}),
        child.exited,
      ]);
      if (stoppedFor !== undefined) throw new GitFailure(stoppedFor, 'stopped by us');
      if (exitCode !== 0) throw new GitFailure(problemOf(errors), errors);
      return output;
    } finally {
      clearTimeout(timer);
    }
  };
}

const configPath = (settings: GitSettings) => path.join(settings.directory, 'config');
const caPath = (settings: GitSettings) => path.join(settings.directory, 'ca.pem');

/** Writes what git reads in place of the user's files; answers the settings that every command gets. */
async function prepare(settings: GitSettings): Promise<string[][]> {
  await mkdir(settings.directory, { recursive: true, mode: 0o700 });
  // Only the owner connects repositories, and a path of another user's may be one of them. The commands that serve it
  // take this from a file only.
  await keepFile(configPath(settings), '[safe]\n\tdirectory = *\n');
  const fixed = [
    ['core.hooksPath', path.join(settings.directory, 'no-hooks')],
    ['credential.helper', ''],
    ['http.followRedirects', 'false'],
    // Slower than this for a minute is a dead connection.
    ['http.lowSpeedLimit', '1000'],
    ['http.lowSpeedTime', '60'],
    ['init.defaultBranch', 'main'],
    ['gc.auto', '0'],
    ['maintenance.auto', 'false'],
    // Every fetch keeps its pack: a mirror is packs and nothing else.
    ['fetch.unpackLimit', '1'],
    ['transfer.unpackLimit', '1'],
    ['fetch.recurseSubmodules', 'false'],
    ['protocol.version', '2'],
  ];
  if (settings.extraCa === null) return fixed;
  const bundle = caPath(settings);
  await keepFile(bundle, [...getCACertificates('system'), await readFile(settings.extraCa, 'utf8')].join('\n'));
  return [...fixed, ['http.sslCAInfo', bundle]];
}

/** Writes a file unless it holds the text already; another process that reads it never finds it half written. */
async function keepFile(file: string, text: string): Promise<void> {
  if ((await readFile(file, 'utf8').catch(() => undefined)) === text) return;
  const fresh = `${file}.${newId()}`;
  await writeFile(fresh, text, { mode: 0o600 });
  await rename(fresh, file);
}

const surroundings = (settings: GitSettings, program: string) => ({
  PATH: `${path.dirname(program)}:/usr/local/bin:/usr/bin:/bin`,
  HOME: settings.directory,
  // Failures are told apart by git's English texts.
  LC_ALL: 'C',
  GIT_CONFIG_NOSYSTEM: '1',
  GIT_ATTR_NOSYSTEM: '1',
  GIT_CONFIG_GLOBAL: configPath(settings),
  GIT_TERMINAL_PROMPT: '0',
});

function authorization(remote: GitRemote | undefined): string[][] {
  if (!remote || remote.token === null || remote.url.scheme === 'file') return [];
  const basic = Buffer.from(`x-access-token:${remote.token}`, 'utf8').toString('base64');
  return [[`http.${remote.url.origin}/.extraHeader`, `Authorization: Basic ${basic}`]];
}

/** Named always: without one git would look for the variables of the environment, which it is not given. */
function proxy(settings: GitSettings, remote: GitRemote | undefined): string[][] {
  const url = remote === undefined ? null : (settings.proxyFor?.(remote.url.cloneUrl) ?? null);
  if (url === null) return [['http.proxy', '']];
  return [
    ['http.proxy', url],
    // Else the credentials would be held back until the proxy has said which kind it likes.
    ['http.proxyAuthMethod', 'basic'],
    ...(settings.extraCa === null ? [] : [['http.proxySSLCAInfo', caPath(settings)]]),
  ];
}

/** Settings in the form in which git takes them from the environment: neither arguments nor files show them. */
function configuration(entries: readonly string[][]): Record<string, string> {
  const variables: Record<string, string> = { GIT_CONFIG_COUNT: String(entries.length) };
  for (const [position, [key = '', value = '']] of entries.entries()) {
    variables[`GIT_CONFIG_KEY_${position}`] = key;
    variables[`GIT_CONFIG_VALUE_${position}`] = value;
  }
  return variables;
}

function killGroup(pid: number): void {
  try {
    process.kill(-pid, 'SIGKILL');
  } catch {
    // It has ended by itself in this moment.
  }
}

/** The stream's text, cut at `most` bytes; what follows is read and dropped, so that the writer is not held up. */
async function readText(stream: ReadableStream<Uint8Array>, most: number, tooLong: () => void): Promise<string> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of stream) {
    if (bytes < most) chunks.push(chunk.subarray(0, most - bytes));
    bytes += chunk.byteLength;
    if (bytes > most) tooLong();
  }
  return Buffer.concat(chunks).toString('utf8');
}
