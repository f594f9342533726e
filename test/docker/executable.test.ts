import { afterAll, beforeAll, expect, test } from 'bun:test';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import manifest from '../../package.json';
import { imageReference } from '../../src/sandbox/image.ts';

/** What `npm run build` makes, run where there is nothing of this repository. */
let home = '';
let executable = '';

beforeAll(async () => {
  home = await mkdtemp(path.join(tmpdir(), 'slipway-built-'));
  executable = path.join(home, 'slipway');
  const script = path.join(import.meta.dir, '../../src/build.ts');
  const build = Bun.spawn([process.execPath, script, '--outfile', executable], { stdout: 'ignore', stderr: 'pipe' });
  expect(await new Response(build.stderr).text()).toBe('');
  expect(await build.exited).toBe(0);
}, 60_000);
afterAll(() => rm(home, { recursive: true, force: true }));

const start = (...words: string[]) =>
  Bun.spawn([executable, ...words], { cwd: home, stdin: 'ignore', stdout: 'pipe', stderr: 'pipe' });

async function run(...words: string[]) {
  const child = start(...words);
  const [code, stdout, stderr] = await Promise.all([
    child.exited,
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
  ]);
  return { code, stdout, stderr };
}

test('it says its version', async () => {
  expect(await run('version')).toEqual({ code: 0, stdout: `slipway ${manifest.version}\n`, stderr: '' });
});

test('it sets a data directory up and serves it', async () => {
  const where = ['--data-dir', path.join(home, 'data')];
  const { stdout } = await run('init', ...where, '--owner-email', 'owner@example.test', '--json');
  const { workspaceId, workspaceKey } = JSON.parse(stdout);
  const server = start('serve', ...where, '--listen', '127.0.0.1:0');
  try {
    const { value } = await server.stdout.getReader().read();
    const address = /http:\S+/.exec(new TextDecoder().decode(value))?.[0];
    const answer = await fetch(`${address}/api/v1/workspace`, { headers: { authorization: `Bearer ${workspaceKey}` } });
    expect(await answer.json()).toMatchObject({ workspace: { id: workspaceId } });
  } finally {
    server.kill('SIGTERM');
    expect(await server.exited).toBe(0);
  }
});

test('it has what the sandbox image is made of inside', async () => {
  expect(await run('sandbox', 'build')).toMatchObject({ code: 0, stdout: `${imageReference()}\n` });
});

test('it reaches the engine, and a sandbox is confined as from source', async () => {
  const { code, stdout } = await run('sandbox', 'check', '--data-dir', path.join(home, 'check'));
  expect(stdout).toContain('The sandbox has no network but the door to the server.');
  expect(code).toBe(0);
});
