import path from 'node:path';
import { cpuSeconds, type Figure, median, range } from './figures.ts';
import { type Bench, createAutomation, serve } from './server.ts';

const rounds = 9;
const connections = 32;
const durationMs = 1000;
const goal = 0.7;

interface Target {
  readonly port: number;
  readonly pid: number;
}
type Targets = Record<'ours' | 'bare', Target>;

/** Reads with their bearer and their database lookups, against the same by a bare `Bun.serve`, in turn. */
export async function measureReads(bench: Bench): Promise<Figure[]> {
  await using ours = await serve(bench);
  const automationId = await createAutomation(bench, ours.url);
  const bare = Bun.spawn([process.execPath, path.join(import.meta.dir, 'bare.ts'), bench.database], {
    stdout: 'pipe',
    stderr: 'inherit',
  });
  try {
    const { value } = await bare.stdout.getReader().read();
    const { port } = JSON.parse(new TextDecoder().decode(value)) as { port: number };
    const targets = { ours, bare: { port, pid: bare.pid } };
    return [
      await compare('GET /workspace', '/api/v1/workspace', targets, bench.workspaceKey),
      await compare('GET /automations/{id}', `/api/v1/automations/${automationId}`, targets, bench.workspaceKey),
    ];
  } finally {
    bare.kill();
    await bare.exited;
  }
}

async function compare(name: string, route: string, targets: Targets, bearer: string): Promise<Figure> {
  await sameAnswer(route, targets, bearer);
  const seen = {
    ours: { perSecond: [] as number[], perCpuSecond: [] as number[], p99Ms: [] as number[] },
    bare: { perSecond: [] as number[], perCpuSecond: [] as number[], p99Ms: [] as number[] },
  };
  for (let round = 0; round <= rounds; round += 1) {
    // In turn, and the other one first in the next round: what else the machine does must not favour one of them.
    for (const who of round % 2 === 0 ? (['ours', 'bare'] as const) : (['bare', 'ours'] as const)) {
      const before = await cpuSeconds(targets[who].pid);
      const { answers, perSecond, refused, p99Ms } = await load(targets[who].port, route, bearer);
      const spent = (await cpuSeconds(targets[who].pid)) - before;
      if (refused > 0) throw new Error(`${who} refused ${refused} requests`);
      // The first round warms both up.
      if (round === 0) continue;
      seen[who].perSecond.push(perSecond);
      seen[who].perCpuSecond.push(answers / spent);
      seen[who].p99Ms.push(p99Ms);
    }
  }
  const ratios = (kind: 'perSecond' | 'perCpuSecond') =>
    seen.ours[kind].map((value, round) => value / (seen.bare[kind][round] ?? Number.NaN));
  const medians = (kind: 'perSecond' | 'perCpuSecond' | 'p99Ms', digits: number) =>
    `${median(seen.ours[kind]).toFixed(digits)} against ${median(seen.bare[kind]).toFixed(digits)}`;
  const ratio = median(ratios('perSecond'));
  return {
    name: `\`${name}\` against a bare Bun.serve`,
    value: ratio.toFixed(2),
    goal: `at least ${goal}`,
    met: ratio >= goal,
    detail:
      `${range(ratios('perSecond'), 2)}; ${medians('perSecond', 0)} requests/s at ${connections} connections, ` +
      `p99 ${medians('p99Ms', 1)} ms; ` +
      `per CPU second ${median(ratios('perCpuSecond')).toFixed(2)} (${medians('perCpuSecond', 0)})`,
  };
}

/** A comparison says something only where both answer the same. */
async function sameAnswer(route: string, targets: Targets, bearer: string): Promise<void> {
  const [ours, bare] = await Promise.all(
    [targets.ours, targets.bare].map(async ({ port }) => {
      const response = await fetch(`http://127.0.0.1:${port}${route}`, {
        headers: { authorization: `Bearer ${bearer}` },
      });
      return `${response.status} ${await response.text()}`;
    }),
  );
  if (ours !== bare) throw new Error(`The answers to ${route} differ: ${ours} and ${bare}`);
}

async function load(port: number, route: string, bearer: string) {
  const client = Bun.spawn(
    [
      process.execPath,
      path.join(import.meta.dir, 'load.ts'),
      String(port),
      route,
      bearer,
      String(connections),
      String(durationMs),
    ],
    { stdout: 'pipe', stderr: 'inherit' },
  );
  return JSON.parse(await new Response(client.stdout).text()) as {
    answers: number;
    perSecond: number;
    refused: number;
    p99Ms: number;
  };
}
