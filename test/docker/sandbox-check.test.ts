import { expect, test } from 'bun:test';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { command } from '../../src/cli/sandbox.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { dockerSandbox } from '../../src/sandbox/docker.ts';
import { lookInside } from '../../src/sandbox/docker-check.ts';
import { imageReference } from '../../src/sandbox/image.ts';
import { fakeTerminal } from '../support/terminal.ts';

const limits = { memoryBytes: 128 * 1024 * 1024, cpus: 1, processes: 64 };

test('slipway sandbox check sees a sandbox with nothing but lo and its door, and leaves nothing behind', async () => {
  const dataDir = await mkdtemp(path.join(tmpdir(), 'slipway-check-'));
  try {
    const terminal = fakeTerminal();
    expect(await command.run(['check', '--data-dir', dataDir], terminal)).toBe(0);
    expect(terminal.stdout).toContain('Interfaces  lo\nInternet    not reached\nDoor        leads to the server\n');
    expect(terminal.stderr).toBe('');
    expect(await Array.fromAsync(new Bun.Glob('**/*').scan({ cwd: dataDir, onlyFiles: false }))).toEqual(['doors']);
  } finally {
    await rm(dataDir, { recursive: true, force: true });
  }
});

test('what was looked into is removed, volumes included', async () => {
  const directory = await mkdtemp(path.join(tmpdir(), 'slipway-check-'));
  const sandbox = dockerSandbox({
    dockerHost: null,
    image: imageReference(),
    installation: `test-${crypto.randomUUID().slice(0, 8)}`,
    log: silentLog,
  });
  try {
    expect(await lookInside(sandbox, directory, limits)).toMatchObject({ uid: 10_001, reachesInternet: false });
    expect(await sandbox.leftovers()).toEqual([]);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
});
