import { expect, test } from 'bun:test';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { command } from '../../src/cli/sandbox.ts';
import { fakeTerminal } from '../support/terminal.ts';

test('slipway sandbox check sees a sandbox with nothing but lo and its door, and leaves nothing behind', async () => {
  const dataDir = await mkdtemp(path.join(tmpdir(), 'slipway-check-'));
  try {
    const terminal = fakeTerminal();
    expect(await command.run(['check', '--data-dir', dataDir], terminal)).toBe(0);
    expect(terminal.stdout).toMatch(/^ok {2}a network interface +- +lo$/m);
    expect(terminal.stdout).toMatch(/^ok {2}the proxy +- +leads to the server$/m);
    expect(terminal.stdout).not.toContain('BAD');
    expect(terminal.stderr).toBe('');
    expect(await Array.fromAsync(new Bun.Glob('**/*').scan({ cwd: dataDir, onlyFiles: false }))).toEqual(['doors']);
  } finally {
    await rm(dataDir, { recursive: true, force: true });
  }
});
