import { describe, expect, test } from 'bun:test';
import { chmod, mkdir, readdir, rm, truncate } from 'node:fs/promises';
import path from 'node:path';
import { type GitProviderSettings, gitProvider } from '../../src/integrations/git.ts';
import { type Checkout, RepositoryUnavailable } from '../../src/integrations/provider.ts';
import { localRepository, runGit, temporaryDirectory } from '../support/git.ts';

const id = '0198b2a0-0000-7000-8000-000000000001';

/** A provider with a data directory of its own. */
async function provider(settings: Partial<GitProviderSettings> = {}) {
  const data = await temporaryDirectory();
  const make = () => gitProvider({ dataDir: data.path, extraCa: null, allowsPlainHttp: () => false, ...settings });
  return {
    git: make(),
    restarted: make,
    mirror: path.join(data.path, 'mirrors', `${id}.git`),
    dataDir: data.path,
    [Symbol.asyncDispose]: () => data[Symbol.asyncDispose](),
  };
}

const sourceOf = (cloneUrl: string, defaultBranch = 'main') => ({ id, fullName: 'demo', cloneUrl, defaultBranch });

/** What the sandbox does: unpacks the tar into `.git` and makes the work tree. */
async function unpack(checkout: Checkout) {
  const directory = await temporaryDirectory();
  await mkdir(path.join(directory.path, '.git'));
  const tar = Bun.spawn(['tar', '-xf', '-', '-C', path.join(directory.path, '.git')], { stdin: 'pipe' });
  for await (const chunk of checkout.open()) tar.stdin.write(chunk);
  await tar.stdin.end();
  expect(await tar.exited).toBe(0);
  await runGit(directory.path, 'reset', '--hard', '--quiet');
  return {
    path: directory.path,
    git: (...args: string[]) => runGit(directory.path, ...args),
    [Symbol.asyncDispose]: () => directory[Symbol.asyncDispose](),
  };
}

const reasonOf = (promise: Promise<unknown>): Promise<unknown> =>
  promise.then(
    () => 'no failure',
    (error) => error,
  );

describe('discovering a repository', () => {
  test('answers its name and default branch', async () => {
    await using at = await provider();
    await using origin = await localRepository();
    await origin.commit({ a: '1' });
    await origin.git('checkout', '--quiet', '-b', 'trunk');
    expect(await at.git.discover(origin.url, null)).toEqual({
      fullName: 'demo',
      defaultBranch: 'trunk',
      private: true,
    });
  });

  test.each([
    ['without a commit', async () => localRepository(), 'has no commit yet'],
    [
      'whose HEAD is at no branch',
      async () => {
        const origin = await localRepository();
        await origin.commit({ a: '1' });
        await origin.git('checkout', '--quiet', '--detach');
        await origin.commit({ a: '2' });
        return origin;
      },
      'has no default branch',
    ],
  ])('%s is refused in plain words', async (_, make, words) => {
    await using at = await provider();
    await using origin = await make();
    await expect(at.git.discover(origin.url, null)).rejects.toMatchObject({
      kind: 'bad_gateway',
      code: 'integration_refresh_failed',
      message: expect.stringContaining(words),
    });
  });

  test('that is not there is refused without telling the path', async () => {
    await using at = await provider();
    const error = (await reasonOf(at.git.discover(`file://${at.dataDir}/nothing.git`, null))) as Error;
    expect(error.message).toContain('nothing was not found');
    expect(error.message).not.toContain(at.dataDir);
    expect(error).toMatchObject({ kind: 'bad_gateway' });
  });

  test('works for a repository that belongs to another user', async () => {
    await using at = await provider();
    await using origin = await localRepository();
    await origin.commit({ a: '1' });
    if (process.getuid?.() !== 0) return;
    expect(await Bun.spawn(['chown', '-R', '12345:12345', origin.path]).exited).toBe(0);
    expect(await at.git.discover(origin.url, null)).toMatchObject({ defaultBranch: 'main' });
    expect(await at.git.checkout(sourceOf(origin.url), null)).toMatchObject({ branch: 'main' });
  });
});

describe('a checkout', () => {
  test('becomes a clean work tree with full history, branches, tags and an origin that answers', async () => {
    await using at = await provider();
    await using origin = await localRepository();
    await origin.commit({ 'a.txt': '1' }, 'First');
    await origin.git('tag', '-a', 'v1', '-m', 'Version 1');
    await origin.git('branch', 'feature/"x"');
    const commit = await origin.commit({ 'a.txt': '2', 'dir/b.txt': '3' }, 'Second');
    const checkout = await at.git.checkout(sourceOf(origin.url), null);
    expect(checkout).toMatchObject({ branch: 'main', commit });

    await using work = await unpack(checkout);
    expect(await work.git('status', '--porcelain=v1', '--branch')).toBe('## main...origin/main');
    expect(await work.git('log', '--format=%s')).toBe('Second\nFirst');
    expect(await work.git('fsck', '--strict')).toBe('');
    expect(await work.git('branch', '--remotes', '--format=%(refname)')).toBe(
      'refs/remotes/origin/HEAD\nrefs/remotes/origin/feature/"x"\nrefs/remotes/origin/main',
    );
    expect(await work.git('describe', '--tags')).toMatch(/^v1-1-g/);
    expect(await work.git('remote', 'get-url', 'origin')).toBe(origin.url);

    const next = await origin.commit({ 'a.txt': '4' }, 'Third');
    await work.git('fetch', '--quiet');
    expect(await work.git('log', '-1', '--format=%H', 'origin/main')).toBe(next);
    await work.git('pull', '--quiet', '--ff-only');
    expect(await Bun.file(path.join(work.path, 'a.txt')).text()).toBe('4');
  });

  test('holds no hook, no work tree and nothing of ours', async () => {
    await using at = await provider();
    await using origin = await localRepository();
    await origin.commit({ a: '1' });
    await Bun.write(path.join(origin.path, '.git/hooks/post-checkout'), '#!/bin/sh\ntouch /tmp/slipway-hook\n');
    await chmod(path.join(origin.path, '.git/hooks/post-checkout'), 0o755);
    await using work = await unpack(await at.git.checkout(sourceOf(origin.url), null));
    const names = (await readdir(path.join(work.path, '.git'))).sort();
    expect(names.filter((name) => !['index', 'logs', 'ORIG_HEAD'].includes(name))).toEqual([
      'HEAD',
      'config',
      'objects',
      'packed-refs',
      'refs',
    ]);
    expect(await Bun.file(path.join(work.path, '.git/config')).text()).not.toContain('safe');
  });

  test('of a repository with SHA-256 object names works', async () => {
    await using at = await provider();
    await using origin = await localRepository({ objectFormat: 'sha256' });
    const commit = await origin.commit({ a: '1' });
    await using work = await unpack(await at.git.checkout(sourceOf(origin.url), null));
    expect(await work.git('rev-parse', 'HEAD')).toBe(commit);
    expect(await work.git('status', '--porcelain')).toBe('');
  });

  test('of an origin that is cut off itself works as far as it goes', async () => {
    await using at = await provider();
    await using origin = await localRepository();
    for (const text of ['1', '2', '3']) await origin.commit({ a: text });
    await runGit(at.dataDir, 'clone', '--quiet', '--depth=2', origin.url, 'cut');
    await using work = await unpack(await at.git.checkout(sourceOf(`file://${at.dataDir}/cut`), null));
    expect(await work.git('rev-list', '--count', 'HEAD')).toBe('2');
    expect(await work.git('status', '--porcelain')).toBe('');
  });

  test('follows pushes, forced pushes, new and deleted branches', async () => {
    await using at = await provider();
    await using origin = await localRepository();
    const first = await origin.commit({ a: '1' });
    await origin.git('branch', 'old');
    await at.git.checkout(sourceOf(origin.url), null);
    await origin.git('branch', '-D', 'old');
    await origin.git('branch', 'old/deeper');
    await origin.git('commit', '--quiet', '--amend', '-m', 'Amended');
    const amended = await origin.git('rev-parse', 'HEAD');
    const checkout = await at.git.checkout(sourceOf(origin.url), null);
    expect(checkout.commit).toBe(amended);
    expect(amended).not.toBe(first);
    await using work = await unpack(checkout);
    expect(await work.git('branch', '--remotes', '--format=%(refname)')).toBe(
      'refs/remotes/origin/HEAD\nrefs/remotes/origin/main\nrefs/remotes/origin/old/deeper',
    );
  });

  test('stays readable when the branch is rewritten before it is opened', async () => {
    await using at = await provider();
    await using origin = await localRepository();
    const first = await origin.commit({ a: '1' });
    const checkout = await at.git.checkout(sourceOf(origin.url), null);
    await origin.git('commit', '--quiet', '--amend', '-m', 'Amended');
    for (let n = 0; n < 18; n += 1) {
      await origin.commit({ a: `again ${n}` });
      await at.git.checkout(sourceOf(origin.url), null);
    }
    expect(
      (await readdir(path.join(at.mirror, 'objects/pack'))).filter((name) => name.endsWith('.pack')).length,
    ).toBeLessThan(17);
    await using work = await unpack(checkout);
    expect(await work.git('rev-parse', 'HEAD')).toBe(first);
    expect(await Bun.file(path.join(work.path, 'a')).text()).toBe('1');
  });

  test('takes the present default branch where the one that was stored is gone', async () => {
    await using at = await provider();
    await using origin = await localRepository();
    await origin.commit({ a: '1' });
    expect((await at.git.checkout(sourceOf(origin.url, 'master'), null)).branch).toBe('main');
    await origin.git('checkout', '--quiet', '-b', 'other');
    expect((await at.git.checkout(sourceOf(origin.url, 'main'), null)).branch).toBe('main');
  });

  test('by many at once gives each a whole one from one mirror', async () => {
    await using at = await provider();
    await using origin = await localRepository();
    const commit = await origin.commit({ a: '1' });
    const checkouts = await Promise.all(Array.from({ length: 8 }, () => at.git.checkout(sourceOf(origin.url), null)));
    expect(new Set(checkouts.map((checkout) => checkout.commit))).toEqual(new Set([commit]));
    expect(await readdir(path.dirname(at.mirror))).toEqual([`${id}.git`]);
    const sizes = await Promise.all(checkouts.map(async (one) => (await new Response(one.open()).bytes()).byteLength));
    expect(new Set(sizes).size).toBe(1);
  });

  test('that is given up in the middle of the stream leaves no file open', async () => {
    await using at = await provider();
    await using origin = await localRepository();
    await origin.commit({
      big: Buffer.from(crypto.getRandomValues(new Uint8Array(60_000)))
        .toString('hex')
        .repeat(20),
    });
    const checkout = await at.git.checkout(sourceOf(origin.url), null);
    const opened = async () => {
      const links = await Promise.all(
        (await readdir('/proc/self/fd')).map((fd) =>
          Bun.$`readlink /proc/${process.pid}/fd/${fd}`.nothrow().quiet().text(),
        ),
      );
      return links.filter((link) => link.includes(id)).length;
    };
    const reader = checkout.open().getReader();
    await reader.read();
    expect(await opened()).toBeGreaterThan(0);
    await reader.cancel();
    expect(await opened()).toBe(0);
  });
});

describe('a mirror', () => {
  const damage: [string, (mirror: string) => Promise<void>][] = [
    ['without its manifest, as a killed clone leaves it', (mirror) => rm(path.join(mirror, 'slipway.json'))],
    ['with half a manifest', (mirror) => truncate(path.join(mirror, 'slipway.json'), 20)],
    ['with a pack that is cut short', async (mirror) => truncate(await packOf(mirror), 40)],
    ['without its pack', async (mirror) => rm(await packOf(mirror))],
  ];
  const packOf = async (mirror: string) => {
    const folder = path.join(mirror, 'objects/pack');
    const name = (await readdir(folder)).find((entry) => entry.endsWith('.pack')) ?? '';
    await chmod(path.join(folder, name), 0o644);
    return path.join(folder, name);
  };

  test.each(damage)('%s is cloned anew', async (_, spoil) => {
    await using at = await provider();
    await using origin = await localRepository();
    await origin.commit({ a: '1' });
    await at.git.checkout(sourceOf(origin.url), null);
    await spoil(at.mirror);
    await using work = await unpack(await at.restarted().checkout(sourceOf(origin.url), null));
    expect(await work.git('fsck', '--strict')).toBe('');
  });

  test('that git itself finds broken when it fetches is cloned anew', async () => {
    await using at = await provider();
    await using origin = await localRepository();
    await origin.commit({ a: '1' });
    await at.git.checkout(sourceOf(origin.url), null);
    await rm(path.join(at.mirror, 'HEAD'));
    const commit = await origin.commit({ a: '2' });
    expect((await at.git.checkout(sourceOf(origin.url), null)).commit).toBe(commit);
  });

  test('that is half made is swept at start, with those of repositories that are gone', async () => {
    await using at = await provider();
    await using origin = await localRepository();
    await origin.commit({ a: '1' });
    await at.git.checkout(sourceOf(origin.url), null);
    await mkdir(`${at.mirror}.0198b2a0`);
    await mkdir(path.join(path.dirname(at.mirror), 'gone.git'));
    await at.restarted().sweep(new Set([id]));
    expect(await readdir(path.dirname(at.mirror))).toEqual([`${id}.git`]);
  });

  test('is kept when the origin cannot be read for a while', async () => {
    await using at = await provider();
    await using origin = await localRepository();
    const commit = await origin.commit({ a: '1' });
    await at.git.checkout(sourceOf(origin.url), null);
    await Bun.$`mv ${origin.path} ${origin.path}.away`;
    const error = await reasonOf(at.git.checkout(sourceOf(origin.url), null));
    expect(error).toBeInstanceOf(RepositoryUnavailable);
    expect((error as Error).message).toContain('demo was not found');
    expect(await readdir(path.dirname(at.mirror))).toEqual([`${id}.git`]);
    await Bun.$`mv ${origin.path}.away ${origin.path}`;
    expect((await at.git.checkout(sourceOf(origin.url), null)).commit).toBe(commit);
  });
});
