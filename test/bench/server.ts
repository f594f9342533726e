import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { makeSampleRepository } from '../../src/demo/sample.ts';

const main = path.join(import.meta.dir, '../../src/main.ts');

/** A data directory that was set up by `slipway init`, with a repository and an automation, and servers on it. */
export async function setUp() {
  const directory = await mkdtemp(path.join(tmpdir(), 'slipway-bench-'));
  const dataDir = path.join(directory, 'data');
  const run = async (...args: string[]) => {
    const child = Bun.spawn([process.execPath, main, ...args], { stdout: 'pipe', stderr: 'inherit' });
    const text = await new Response(child.stdout).text();
    if ((await child.exited) !== 0) throw new Error(`slipway ${args[0]} failed`);
    return JSON.parse(text);
  };
  const { workspaceKey } = await run('init', '--data-dir', dataDir, '--owner-email', 'owner@example.test', '--json');
  const url = await makeSampleRepository(path.join(directory, 'receipts'));
  const connected = await run('integration', 'connect', 'git', '--data-dir', dataDir, '--url', url, '--json');
  const repositoryId: string = connected.repositories[0].id;
  return {
    dataDir,
    directory,
    workspaceKey: workspaceKey as string,
    repositoryId,
    database: path.join(dataDir, 'slipway.db'),
    [Symbol.asyncDispose]: () => rm(directory, { recursive: true, force: true }),
  };
}
export type Bench = Awaited<ReturnType<typeof setUp>>;

/** Starts `slipway serve` as a user does, from source, and answers when it has answered a request for the first time. */
export async function serve(bench: Bench) {
  const port = freePort();
  const began = performance.now();
  const child = Bun.spawn(
    [process.execPath, main, 'serve', '--data-dir', bench.dataDir, '--listen', `127.0.0.1:${port}`],
    {
      stdout: 'ignore',
      stderr: 'ignore',
      env: { ...process.env, OPENAI_API_KEY: 'sk-not-used' },
    },
  );
  const url = `http://127.0.0.1:${port}`;
  const headers = { authorization: `Bearer ${bench.workspaceKey}` };
  for (;;) {
    const answer = await fetch(`${url}/api/v1/workspace`, { headers }).catch(() => undefined);
    if (answer?.ok) break;
    if (child.exitCode !== null) throw new Error('the server ended');
    await Bun.sleep(1);
  }
  return {
    url,
    port,
    pid: child.pid,
    startMs: performance.now() - began,
    async [Symbol.asyncDispose]() {
      child.kill();
      await child.exited;
    },
  };
}

function freePort(): number {
  const probe = Bun.listen({ hostname: '127.0.0.1', port: 0, socket: { data() {} } });
  probe.stop(true);
  return probe.port;
}

/** The usual automation of the benchmark; answers its id. */
export async function createAutomation(bench: Bench, url: string): Promise<string> {
  const response = await fetch(`${url}/api/v1/automations`, {
    method: 'POST',
    headers: { authorization: `Bearer ${bench.workspaceKey}`, 'content-type': 'application/json' },
    body: JSON.stringify({
      name: `Benchmark ${crypto.randomUUID()}`,
      configuration: {
        prompt: 'Mend the failing test.',
        repositoryIds: [bench.repositoryId],
        triggers: [{ kind: 'schedule', frequency: 'daily', hour: 6, weekday: 1, timezone: 'UTC' }],
      },
    }),
  });
  return ((await response.json()) as { automation: { id: string } }).automation.id;
}
