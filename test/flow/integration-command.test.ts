import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import { readdir, readFile } from 'node:fs/promises';
import path from 'node:path';
import { openData } from '../../src/cli/data.ts';
import { dispatch } from '../../src/cli/dispatch.ts';
import { readConfig } from '../../src/config.ts';
import { localRepository, temporaryDirectory } from '../support/git.ts';
import { fakeTerminal } from '../support/terminal.ts';

let data: Awaited<ReturnType<typeof temporaryDirectory>>;
beforeEach(async () => {
  data = await temporaryDirectory();
});
afterEach(() => data[Symbol.asyncDispose]());

async function integration(args: string[], input = '') {
  const terminal = fakeTerminal(input);
  const argv = ['integration', ...args, '--data-dir', data.path];
  const code = await dispatch(argv, { integration: () => import('../../src/cli/integration.ts') }, terminal);
  return { code, stdout: terminal.stdout, stderr: terminal.stderr };
}

/** Workspaces by their slugs, which are their ids as well. */
async function workspaces(...slugs: string[]) {
  const { database, close } = await openData(readConfig({ dataDir: data.path }, {}));
  await database.write(async (tx) => {
    await tx.run("INSERT INTO organisations VALUES ('o', 'Acme', 0)");
    for (const slug of slugs) await tx.run("INSERT INTO workspaces VALUES (?, 'o', 'W', ?, 0)", slug, slug);
  });
  await close();
}

describe('slipway integration', () => {
  test('connects, lists and removes a repository; --json prints one object', async () => {
    await workspaces('main');
    await using origin = await localRepository();
    await origin.commit({ a: '1' });
    const connected = await integration(['connect', 'git', '--url', origin.url, '--name', 'My demo', '--json']);
    expect(connected).toMatchObject({ code: 0, stderr: '' });
    const printed = JSON.parse(connected.stdout);
    expect(printed).toEqual({
      integration: { id: expect.any(String), provider: 'git', displayName: 'My demo' },
      repositories: [
        {
          id: expect.any(String),
          integrationAccountId: printed.integration.id,
          fullName: 'demo',
          defaultBranch: 'main',
          private: true,
        },
      ],
    });
    const listed = await integration(['list', '--json']);
    expect(JSON.parse(listed.stdout)).toEqual({
      integrations: [printed.integration],
      repositories: printed.repositories,
      resources: [],
    });
    expect((await integration(['list'])).stdout).toContain('My demo');
    expect(await integration(['remove', printed.integration.id])).toMatchObject({ code: 0 });
    expect((await integration(['list'])).stdout).toContain('Nothing is connected');
    expect(await integration(['remove', printed.integration.id])).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('not found'),
    });
  });

  test('is seen at once by a server that has the database open', async () => {
    await workspaces('main');
    await using origin = await localRepository();
    await origin.commit({ a: '1' });
    const { database, close } = await openData(readConfig({ dataDir: data.path }, {}));
    await integration(['connect', 'git', '--url', origin.url]);
    expect(await database.all('SELECT full_name FROM repositories')).toEqual([{ full_name: 'demo' }]);
    await close();
  });

  test.each<[string, string[], string, number, string]>([
    ['no action', [], '', 2, 'action is missing'],
    ['an unknown action', ['connects'], '', 2, 'Unknown action'],
    ['no provider', ['connect', '--url', 'https://h/o/r'], '', 2, 'PROVIDER is missing'],
    ['an unknown provider', ['connect', 'svn', '--url', 'https://h/o/r'], '', 2, 'Unknown provider'],
    ['no URL', ['connect', 'git'], '', 2, '--url URL is missing'],
    ['an empty token', ['connect', 'git', '--url', 'https://h/o/r', '--token-stdin'], '\n', 2, 'no token'],
    ['a credential in the URL', ['connect', 'git', '--url', 'https://a:hunter2@h/o/r'], '', 1, '--token-stdin'],
    ['a path that is no repository', ['connect', 'git', '--url', 'file:///nowhere/demo'], '', 1, 'was not found'],
    [
      'a token that cannot be one',
      ['connect', 'git', '--url', 'https://h/o/r', '--token-stdin'],
      'hunter2 x',
      1,
      'token',
    ],
    ['an unknown workspace', ['list', '--workspace', 'other'], '', 2, '--workspace'],
    ['no id to remove', ['remove'], '', 2, 'ID is missing'],
  ])('called with %s says so and changes nothing', async (_, args, input, code, words) => {
    await workspaces('main');
    const answer = await integration(args, input);
    expect(answer.code).toBe(code);
    expect(answer.stderr).toContain(words);
    expect(answer.stderr).not.toContain('hunter2');
    expect((await integration(['list'])).stdout).toContain('Nothing is connected');
  });

  test('asks which workspace where there are several', async () => {
    await workspaces('one', 'two');
    await using origin = await localRepository();
    await origin.commit({ a: '1' });
    const connect = ['connect', 'git', '--url', origin.url];
    expect(await integration(connect)).toMatchObject({ code: 2, stderr: expect.stringContaining('one, two') });
    expect(await integration([...connect, '--workspace', 'two'])).toMatchObject({ code: 0 });
    expect((await integration(['list', '--workspace', 'one'])).stdout).toContain('Nothing is connected');
    expect((await integration(['list', '--workspace', 'two'])).stdout).toContain('demo');
  });

  test('says what to do before there is a workspace', async () => {
    expect(await integration(['list'])).toMatchObject({ code: 1, stderr: expect.stringContaining('slipway init') });
  });

  test('leaves files that only their owner can read', async () => {
    await workspaces('main');
    await integration(['connect', 'git', '--url', 'file:///nowhere/demo']);
    expect(await readFile(path.join(data.path, 'git/config'), 'utf8')).toContain('safe');
    for (const name of await readdir(path.join(data.path, 'git'))) {
      expect((await Bun.file(path.join(data.path, 'git', name)).stat()).mode & 0o077).toBe(0);
    }
  });
});
