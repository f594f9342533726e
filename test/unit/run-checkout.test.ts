import { describe, expect, test } from 'bun:test';
import path from 'node:path';
import { RepositoryUnavailable } from '../../src/integrations/provider.ts';
import { gitConfig, prepareCheckout, type RunRepository, wrapped } from '../../src/runner/checkout.ts';
import { checkoutFailedCode } from '../../src/runner/outcome.ts';
import { repositoryPaths } from '../../src/runner/places.ts';
import { runGit, temporaryDirectory } from '../support/git.ts';

describe('the places of repositories', () => {
  const table: [string, string[], string[]][] = [
    ['are called as the repositories are', ['acme/web', 'acme/api'], ['web', 'api']],
    ['get a number where two are called alike', ['acme/web', 'other/web', 'third/Web'], ['web', 'web-2', 'Web-3']],
    ['do not run into a number that is taken', ['a/x-2', 'b/x', 'c/x'], ['x-2', 'x', 'x-3']],
    ['hold nothing that a shell would read', ["a/b'; rm -rf $HOME"], ['b---rm--rf--HOME']],
    [
      'are never hidden and never lead up',
      ['a/..', 'a/.git', 'a/-rf', 'a/...'],
      ['repository', 'git', 'rf', 'repository-2'],
    ],
    ['exist for a name of other letters', ['a/日本'], ['repository']],
  ];
  test.each(table)('%s', (_, names, expected) => {
    expect(repositoryPaths(names)).toEqual(expected.map((name) => `/workspace/${name}`));
  });
});

describe('a checkout', () => {
  const repository = (fullName: string, checkout: RunRepository['checkout']): RunRepository => ({
    id: fullName,
    fullName,
    cloneUrl: `https://git.example/${fullName}`,
    checkout,
  });
  const opened = { branch: 'main', commit: 'c0ffee', open: () => new Blob(['tar']).stream() };

  test('goes on side by side, and keeps the order of the repositories', async () => {
    const first = Promise.withResolvers<void>();
    const prepared = await prepareCheckout([
      repository('a/one', () => first.promise.then(() => opened)),
      repository('a/two', async () => {
        first.resolve();
        return { ...opened, branch: 'dev' };
      }),
    ]);
    expect(prepared.checkouts.map(({ path: place, branch }) => [place, branch])).toEqual([
      ['/workspace/one', 'main'],
      ['/workspace/two', 'dev'],
    ]);
    expect(prepared.archives.map((archive) => archive.path)).toEqual(['/workspace/one/.git', '/workspace/two/.git']);
  });

  test('that fails says which repository and why; a bug stays a bug', async () => {
    const failing = (error: Error) => prepareCheckout([repository('a/one', () => Promise.reject(error))]);
    expect(failing(new RepositoryUnavailable('a/one is gone: connect it again.'))).rejects.toMatchObject({
      category: 'repository_unavailable',
      message: 'a/one is gone: connect it again.',
    });
    const bug = new Error('bug');
    expect(failing(bug)).rejects.toBe(bug);
  });
});

describe('the command of an agent', () => {
  const run = async (command: string[], cwd: string) => {
    const child = Bun.spawn(command, { cwd, stdout: 'pipe', stderr: 'ignore' });
    return { output: await new Response(child.stdout).text(), code: await child.exited };
  };

  test('is left as it is where there is nothing to check out', () => {
    expect(wrapped(['codex', 'exec'], [])).toEqual(['codex', 'exec']);
  });

  test('makes the work trees first, then becomes the program, with its arguments untouched', async () => {
    await using place = await temporaryDirectory();
    await runGit(place.path, 'init', '--quiet');
    await Bun.write(path.join(place.path, 'a.txt'), 'a');
    await runGit(place.path, 'add', '-A');
    await runGit(place.path, 'commit', '--quiet', '-m', 'x');
    await runGit(place.path, 'rm', '--quiet', '--cached', 'a.txt');
    await Bun.file(path.join(place.path, 'a.txt')).delete();
    const command = wrapped(['printf', '%s|', 'two words', '$HOME', "it's", ''], [place.path]);
    expect(await run(command, place.path)).toEqual({ output: "two words|$HOME|it's||", code: 0 });
    expect(await Bun.file(path.join(place.path, 'a.txt')).text()).toBe('a');
  });

  test('ends with a status of its own where a work tree cannot be made, and starts no program', async () => {
    await using place = await temporaryDirectory();
    const command = wrapped(['echo', 'started'], [path.join(place.path, 'missing')]);
    expect(await run(command, place.path)).toEqual({ output: '', code: checkoutFailedCode });
  });
});

describe("git's settings in a sandbox", () => {
  const fill = async (config: string, url: string) => {
    await using place = await temporaryDirectory();
    const file = path.join(place.path, 'gitconfig');
    await Bun.write(file, config);
    const child = Bun.spawn(['git', 'credential', 'fill'], {
      env: {
        PATH: process.env.PATH ?? '',
        GIT_CONFIG_GLOBAL: file,
        GIT_CONFIG_NOSYSTEM: '1',
        GIT_TERMINAL_PROMPT: '0',
      },
      stdin: new Blob([`url=${url}\n\n`]),
      stdout: 'pipe',
      stderr: 'ignore',
    });
    const output = await new Response(child.stdout).text();
    await child.exited;
    return /^password=(.*)$/m.exec(output)?.[1];
  };
  const credential = (cloneUrl: string, placeholder: string) => ({
    cloneUrl,
    username: 'x-access-token',
    placeholder,
  });

  test('give each repository its own placeholder, and no other address any', async () => {
    const config = gitConfig([
      credential('https://git.example/acme/web.git', 'ph_web'),
      credential('https://git.example/acme/api.git', 'ph_api'),
    ]);
    expect(await fill(config, 'https://git.example/acme/web.git')).toBe('ph_web');
    expect(await fill(config, 'https://git.example/acme/api.git')).toBe('ph_api');
    expect(await fill(config, 'https://git.example/acme/other.git')).toBeUndefined();
    expect(await fill(config, 'https://evil.example/acme/web.git')).toBeUndefined();
  });

  test('say who commits, and trust the directories of the volumes', async () => {
    await using place = await temporaryDirectory();
    const file = path.join(place.path, 'gitconfig');
    await Bun.write(file, gitConfig([]));
    const read = (key: string) => runGit(place.path, 'config', '--file', file, key);
    expect(await read('user.name')).toBe('Slipway');
    expect(await read('user.email')).toBe('agent@slipway.invalid');
    expect(await read('safe.directory')).toBe('*');
  });
});
