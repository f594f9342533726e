import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';

/** A directory that is removed with everything in it at the end of its block. */
export async function temporaryDirectory() {
  const directory = await mkdtemp(path.join(tmpdir(), 'slipway-'));
  return {
    path: directory,
    [Symbol.asyncDispose]: () => rm(directory, { recursive: true, force: true }),
  };
}

const identity = {
  GIT_CONFIG_NOSYSTEM: '1',
  GIT_CONFIG_GLOBAL: '/dev/null',
  GIT_AUTHOR_NAME: 'Test',
  GIT_AUTHOR_EMAIL: 'test@example.com',
  GIT_COMMITTER_NAME: 'Test',
  GIT_COMMITTER_EMAIL: 'test@example.com',
  GIT_TERMINAL_PROMPT: '0',
};

/** Runs git in a directory as the tests' own user and answers what it printed, trimmed. Throws when it fails. */
export async function runGit(directory: string, ...args: string[]): Promise<string> {
  const child = Bun.spawn(['git', ...args], {
    cwd: directory,
    env: { ...process.env, ...identity },
    stdout: 'pipe',
    stderr: 'pipe',
  });
  const [output, errors, exitCode] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
    child.exited,
  ]);
  if (exitCode !== 0) throw new Error(`git ${args.join(' ')}: ${errors}`);
  return output.trim();
}

/** A work tree with a repository on the branch `main`, empty until the first commit. */
export async function localRepository(options: { objectFormat?: 'sha1' | 'sha256' } = {}) {
  const directory = await temporaryDirectory();
  const place = path.join(directory.path, 'demo');
  const git = (...args: string[]) => runGit(place, ...args);
  await runGit(
    directory.path,
    'init',
    '--quiet',
    '--initial-branch=main',
    `--object-format=${options.objectFormat ?? 'sha1'}`,
    'demo',
  );
  return {
    path: place,
    url: `file://${place}`,
    git,
    /** Writes the files and commits them; answers the commit. */
    async commit(files: Record<string, string>, message = 'A change'): Promise<string> {
      for (const [name, content] of Object.entries(files)) await Bun.write(path.join(place, name), content);
      await git('add', '--all');
      await git('commit', '--quiet', '--allow-empty', '-m', message);
      return git('rev-parse', 'HEAD');
    },
    [Symbol.asyncDispose]: () => directory[Symbol.asyncDispose](),
  };
}
