import { describe, expect, setDefaultTimeout, test } from 'bun:test';
import { mkdir, mkdtemp, rm, symlink, utimes } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { diffWorkspace, mostPatchBytes } from '../../src/runner/diff.ts';
import type { CheckedOut } from '../../src/runs/row.ts';
import { dummySandbox } from '../../src/sandbox/dummy.ts';
import { createDummyWorld } from '../../src/sandbox/dummy-world.ts';
import { runGit } from '../support/git.ts';

setDefaultTimeout(30_000);

/** A run's volumes with a repository or several, each with one commit. */
async function workspace(names: readonly string[] = ['demo']) {
  const directory = await mkdtemp(path.join(tmpdir(), 'slipway-diff-'));
  const world = createDummyWorld({ directory });
  world.runs.set('run', {
    directory: path.join(directory, 'run'),
    containers: new Map(),
    hasVolumes: true,
    hasStarted: true,
  });
  const root = world.workspace('run');
  const checkouts: CheckedOut[] = [];
  for (const name of names) {
    const place = path.join(root, name);
    await mkdir(place, { recursive: true });
    await runGit(place, 'init', '--quiet', '--initial-branch=main');
    await Bun.write(path.join(place, 'a.txt'), 'one\n');
    await Bun.write(path.join(place, '.gitignore'), 'ignored/\n');
    await runGit(place, 'add', '-A');
    await runGit(place, 'commit', '--quiet', '-m', 'Begin');
    const commit = await runGit(place, 'rev-parse', 'HEAD');
    checkouts.push({ repositoryId: name, fullName: name, path: `/workspace/${name}`, branch: 'main', commit });
  }
  return {
    root,
    git: (...args: string[]) => runGit(path.join(root, names[0] ?? ''), ...args),
    write: (file: string, content: string | Uint8Array) => Bun.write(path.join(root, file), content),
    at: (file: string) => path.join(root, file),
    diff: () => diffWorkspace(dummySandbox(world), 'run', checkouts),
    [Symbol.asyncDispose]: () => rm(directory, { recursive: true, force: true }),
  };
}

const pathsOf = ({ diff }: Awaited<ReturnType<typeof diffWorkspace>>) => diff.files.map((file) => file.path).toSorted();

describe.concurrent('the diff of a workspace', () => {
  test('is empty where nothing was changed', async () => {
    await using place = await workspace();
    expect(await place.diff()).toEqual({ diff: { files: [], patch: '', truncated: false }, whole: true });
  });

  test('sees a change that left the size and every time of a file as they were', async () => {
    await using place = await workspace();
    const then = new Date('2026-01-01T00:00:00Z');
    await place.git('config', 'core.trustctime', 'false');
    await utimes(place.at('demo/a.txt'), then, then);
    await place.git('update-index', '--refresh');
    await utimes(place.at('demo/.git/index'), then, then);
    await place.write('demo/a.txt', 'two\n');
    await utimes(place.at('demo/a.txt'), then, then);
    expect(pathsOf(await place.diff())).toEqual(['a.txt']);
  });

  test('leaves the index of the agent as it is', async () => {
    await using place = await workspace();
    await place.write('demo/new.txt', 'n\n');
    await place.diff();
    expect(await place.git('status', '--porcelain')).toBe('?? new.txt');
  });

  test('says no number of lines for a binary file', async () => {
    await using place = await workspace();
    await place.write('demo/image.bin', new Uint8Array([0, 1, 2, 0]));
    expect((await place.diff()).diff.files).toEqual([{ path: 'image.bin', additions: null, deletions: null }]);
  });

  test('names files as they are called, in every script', async () => {
    await using place = await workspace(['demo', 'other']);
    await place.write('demo/grüße 日本.txt', 'x\n');
    await place.write('other/with space.txt', 'x\n');
    expect(pathsOf(await place.diff())).toEqual(['demo/grüße 日本.txt', 'other/with space.txt']);
  });

  test('leaves out what the repository ignores', async () => {
    await using place = await workspace();
    await place.write('demo/ignored/x', 'x');
    expect(pathsOf(await place.diff())).toEqual([]);
  });

  test('shows what beside a repository is called like one, deeper down', async () => {
    await using place = await workspace();
    await place.write('beside/demo/x.txt', 'x\n');
    expect(pathsOf(await place.diff())).toEqual(['beside/demo/x.txt']);
  });

  test('is not whole where the agent removed a repository, and shows the others', async () => {
    await using place = await workspace(['demo', 'other']);
    await rm(place.at('demo'), { recursive: true });
    await place.write('other/x.txt', 'x\n');
    const result = await place.diff();
    expect(result.whole).toBe(false);
    expect(pathsOf(result)).toContain('other/x.txt');
  });

  test('counts against the checkout where the agent threw the history away', async () => {
    await using place = await workspace();
    await place.git('checkout', '--quiet', '--orphan', 'fresh');
    await place.git('rm', '-rfq', '.');
    await place.write('demo/only.txt', 'x\n');
    await place.git('add', '-A');
    await place.git('commit', '--quiet', '-m', 'Anew');
    expect(pathsOf(await place.diff())).toEqual(['.gitignore', 'a.txt', 'only.txt']);
  });

  test('works where the agent has spoilt its index', async () => {
    await using place = await workspace();
    await place.write('demo/.git/index', 'rubbish');
    await place.write('demo/a.txt', 'changed\n');
    const result = await place.diff();
    expect(pathsOf(result)).toContain('a.txt');
  });

  test.each(['--assume-unchanged', '--skip-worktree'])('shows a file that the agent marked %s', async (mark) => {
    await using place = await workspace();
    await place.git('update-index', mark, 'a.txt');
    await place.write('demo/a.txt', 'changed\n');
    expect(pathsOf(await place.diff())).toEqual(['a.txt']);
  });

  test('runs none of the programs that the settings of the repository name', async () => {
    await using place = await workspace();
    const trap = place.at('trapped');
    await place.write('trap.sh', `#!/bin/sh\ntouch ${trap}\ncat\n`);
    await Bun.$`chmod +x ${place.at('trap.sh')}`.quiet();
    for (const key of ['diff.external', 'core.fsmonitor', 'core.pager', 'core.hooksPath']) {
      await place.git('config', key, place.at('trap.sh'));
    }
    await place.git('config', 'diff.x.textconv', place.at('trap.sh'));
    await place.write('demo/.gitattributes', '*.txt diff=x\n');
    await place.write('demo/a.txt', 'changed\n');
    const result = await place.diff();
    expect(pathsOf(result)).toEqual(['.gitattributes', 'a.txt', 'trap.sh']);
    expect(result.diff.patch).toContain('+changed');
    expect(await Bun.file(trap).exists()).toBe(false);
  });

  test('follows no link out of the workspace', async () => {
    await using place = await workspace();
    await symlink('/etc/passwd', place.at('demo/link'));
    const { diff } = await place.diff();
    expect(diff.patch).toContain('+/etc/passwd');
    expect(diff.patch).not.toContain('root:');
  });

  test('cuts a long patch at a line and keeps the list of files whole', async () => {
    await using place = await workspace();
    await place.write('demo/big.txt', 'a line of text\n'.repeat((2 * mostPatchBytes) / 15));
    await place.write('demo/z.txt', 'z\n');
    const { diff } = await place.diff();
    expect(diff.truncated).toBe(true);
    expect(diff.patch.length).toBeLessThanOrEqual(mostPatchBytes);
    expect(diff.patch.endsWith('\n')).toBe(true);
    expect(diff.files.map(({ path: file }) => file).toSorted()).toEqual(['big.txt', 'z.txt']);
  });
});
