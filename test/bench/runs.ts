import { openData } from '../../src/cli/data.ts';
import { compose } from '../../src/compose.ts';
import { readConfig } from '../../src/config.ts';
import type { Harness, HarnessId } from '../../src/harness/harness.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { imageReference } from '../../src/sandbox/image.ts';
import { type Figure, median, range } from './figures.ts';
import { type Bench, createAutomation } from './server.ts';

const rounds = 11;

/** A harness that says at once that it runs. */
const sayer: Harness = {
  id: 'codex',
  launch: () => ({ command: ['/bin/echo', 'running'], environment: {}, files: [] }),
  reader: () => ({
    read: (line) => [{ kind: 'event', event: { type: 'message', data: { text: line } } }],
    conclude: () => ({ ok: true, answer: null, failure: null }),
  }),
};

/**
 * From the POST of a run to the harness's process running, told by its first line, with checkout, sandbox, door and
 * transcript; against a bare `docker run` of the same image that does nothing, in turn.
 */
export async function measureRuns(bench: Bench): Promise<Figure[]> {
  const config = readConfig(
    { dataDir: bench.dataDir, listen: '127.0.0.1:0' },
    { ...process.env, OPENAI_API_KEY: 'sk-not-used' },
  );
  const data = await openData(config);
  const service = await compose(config, data, {
    log: silentLog,
    harnesses: new Map<HarnessId, Harness>([['codex', sayer]]),
  });
  const listening = await service.server.listen(config.listen);
  await service.runner.start();
  const ours: number[] = [];
  const bare: number[] = [];
  const ratios: number[] = [];
  try {
    const automationId = await createAutomation(bench, listening.url);
    for (let round = 0; round <= rounds; round += 1) {
      const first = await bareRun();
      const second = await ourRun(listening.url, bench.workspaceKey, automationId);
      // The first round makes the mirror and warms the engine up.
      if (round === 0) continue;
      bare.push(first);
      ours.push(second);
      ratios.push(second / first);
    }
  } finally {
    await service.runner.idle();
    const { runs } = await service.runs.list(
      await workspaceOf(listening.url, bench.workspaceKey),
      await firstAutomation(listening.url, bench.workspaceKey),
      1,
      50,
    );
    for (const { id } of runs) await service.sandbox.discard(id);
    await listening.stop(1000);
    await service.close();
    await data.close();
  }
  return [
    {
      name: 'Start of a run against a bare docker run',
      value: median(ratios).toFixed(2),
      goal: 'at most 2',
      met: median(ratios) <= 2,
      detail: `${range(ratios, 2)}; ${median(ours).toFixed(0)} ms against ${median(bare).toFixed(0)} ms, warm image and mirror`,
    },
  ];
}

async function bareRun(): Promise<number> {
  const began = performance.now();
  const child = Bun.spawn(['docker', 'run', '--rm', '--entrypoint', '/bin/true', imageReference()], {
    stdout: 'ignore',
    stderr: 'inherit',
  });
  if ((await child.exited) !== 0) throw new Error('docker run failed');
  return performance.now() - began;
}

/** Milliseconds from the POST to the first line of the harness; resolves when the run has ended. */
async function ourRun(url: string, key: string, automationId: string): Promise<number> {
  const headers = { authorization: `Bearer ${key}` };
  const began = performance.now();
  const { runId } = await post(`${url}/api/v1/automations/${automationId}/runs`, headers);
  const stream = await fetch(`${url}/api/v1/runs/${runId}/stream`, { headers });
  let running = Number.NaN;
  let text = '';
  for await (const piece of stream.body ?? []) {
    text += new TextDecoder().decode(piece);
    if (Number.isNaN(running) && text.includes('event: message')) running = performance.now() - began;
  }
  if (Number.isNaN(running)) throw new Error(`the harness did not run: ${text}`);
  return running;
}

const post = async (url: string, headers: Record<string, string>) =>
  (await (await fetch(url, { method: 'POST', headers })).json()) as { runId: string };

const get = async (url: string, key: string) =>
  (await (await fetch(url, { headers: { authorization: `Bearer ${key}` } })).json()) as never;

const workspaceOf = async (url: string, key: string) =>
  ((await get(`${url}/api/v1/workspace`, key)) as { workspace: { id: string } }).workspace.id;

const firstAutomation = async (url: string, key: string) =>
  ((await get(`${url}/api/v1/automations`, key)) as { automations: { id: string }[] }).automations[0]?.id ?? '';
