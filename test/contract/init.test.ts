import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import { mkdtemp, readdir, rename, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { openData } from '../../src/cli/data.ts';
import { dispatch } from '../../src/cli/dispatch.ts';
import { readConfig } from '../../src/config.ts';
import { fakeTerminal } from '../support/terminal.ts';

let parent = '';
let dataDir = '';
beforeEach(async () => {
  parent = await mkdtemp(path.join(tmpdir(), 'slipway-init-'));
  dataDir = path.join(parent, 'data');
});
afterEach(() => rm(parent, { recursive: true }));

async function init(flags: string[], input = '') {
  const terminal = fakeTerminal(input);
  const argv = ['init', '--data-dir', dataDir, ...flags];
  const code = await dispatch(argv, { init: () => import('../../src/cli/init.ts') }, terminal);
  return { code, stdout: terminal.stdout, stderr: terminal.stderr };
}

const email = ['--owner-email', 'ada@example.com'];

describe('init', () => {
  test('--json prints one object and nothing else', async () => {
    const { code, stdout, stderr } = await init([...email, '--json']);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(Object.keys(JSON.parse(stdout))).toEqual([
      'organisationId',
      'workspaceId',
      'projectId',
      'ownerEmail',
      'ownerPassword',
      'workspaceKey',
      'managementKey',
      'ingestKey',
    ]);
    expect(stdout.trimEnd().split('\n')).toHaveLength(1);
  });

  test('without --json says that the keys are shown once, with every one of them', async () => {
    const { code, stdout } = await init(email);
    expect(code).toBe(0);
    expect(stdout).toContain('shown this once');
    for (const key of [/slk_[\w-]{43}/, /sl_management_[\w-]{43}/, /sl_public_[\w-]{43}/]) expect(stdout).toMatch(key);
  });

  test('makes a data directory that only its owner can read', async () => {
    await init([...email, '--json']);
    expect((await stat(dataDir)).mode & 0o777).toBe(0o700);
    for (const file of await readdir(dataDir)) expect((await stat(path.join(dataDir, file))).mode & 0o077).toBe(0);
    expect((await readdir(dataDir)).sort()).toContain('master.key');
  });

  test('takes the password from standard input up to its last line end and does not print it', async () => {
    const given = await init([...email, '--owner-password-stdin', '--json'], 'correct horse\n');
    expect(JSON.parse(given.stdout)).toMatchObject({ ownerPassword: 'correct horse' });
    dataDir = path.join(parent, 'other');
    expect((await init([...email, '--owner-password-stdin'], 'correct horse\r\n')).stdout).not.toContain(
      'correct horse',
    );
  });

  test('refuses with 1 where the data directory is already set up, and says so on standard error', async () => {
    await init([...email, '--json']);
    const { code, stdout, stderr } = await init([...email, '--json']);
    expect({ code, stdout }).toEqual({ code: 1, stdout: '' });
    expect(stderr).toBe('slipway: Slipway is already set up in this data directory\n');
  });

  test.each([
    [[], '', '--owner-email EMAIL is missing.'],
    [['--owner-email', 'x'], '', '--owner-email: Must be an e-mail address'],
    [[...email, '--workspace', ''], '', '--workspace: Must not be empty.'],
    [[...email, '--owner-password-stdin'], '', 'no password on standard input'],
    [[...email, '--owner-password-stdin'], 'short\n', 'the password: Must have at least 8 characters.'],
    [[...email, '--organization', 'x'], '', 'Unknown flag --organization.'],
  ])('%p ends with 2, names the flag and makes nothing', async (flags, input, message) => {
    const { code, stdout, stderr } = await init(flags, input);
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
    expect(stderr).toContain(message);
    expect(await readdir(parent)).toEqual([]);
  });
});

describe('a data directory', () => {
  const config = (env: Record<string, string> = {}) => readConfig({ dataDir }, env);
  const otherKey = { SLIPWAY_MASTER_KEY: 'ab'.repeat(32) };

  test('opens again with what was sealed in it', async () => {
    const first = await openData(config());
    const sealed = first.vault.seal('value', 'here');
    await first.close();
    const second = await openData(config());
    expect(second.vault.open(sealed, 'here')).toBe('value');
    await second.close();
  });

  test('refuses another master key before anything is served', async () => {
    await (await openData(config())).close();
    await expect(openData(config(otherKey))).rejects.toThrow('The master key is not the one');
    await (await openData(config())).close();
  });

  test('never makes a new key for one that was lost', async () => {
    await (await openData(config())).close();
    const file = path.join(dataDir, 'master.key');
    await rename(file, path.join(parent, 'kept.key'));
    await expect(openData(config())).rejects.toThrow('master.key is missing');
    expect(await Bun.file(file).exists()).toBe(false);
    await rename(path.join(parent, 'kept.key'), file);
    await (await openData(config())).close();
  });

  test('that cannot be made or is none of ours is refused without a path or a stack', async () => {
    await Bun.write(dataDir, 'a file');
    const { code, stderr } = await init(email);
    expect(code).toBe(1);
    expect(stderr.trimEnd().split('\n')).toHaveLength(1);
    expect(stderr).toContain('--data-dir');
    expect(stderr).not.toContain(parent);
  });
});
