import path from 'node:path';
import { cpuSeconds, type Figure, median, range } from './figures.ts';
import { type Bench, createAutomation, serve } from './server.ts';

const rounds = 7;
const connections = 32;
const durationMs = 2000;

/** `GET /automations/{id}` with its bearer and its database lookups, against the same by a bare `Bun.serve`, in turn. */
export async function measureReads(bench: Bench): Promise<Figure[]> {
  await using ours = await serve(bench);
  const automationId = await createAutomation(bench, ours.url);
  const bare = Bun.spawn([process.execPath, path.join(import.meta.dir, 'bare.ts'), bench.database, automationId], {
    stdout: 'pipe',
    stderr: 'inherit',
  });
  try {
    const reader = bare.stdout.getReader();
    const { port } = JSON.parse(new TextDecoder().decode((await reader.read()).value));
    const targets = { ours: { port: ours.port, pid: ours.pid }, bare: { port, pid: bare.pid } };
    const wall: number[] = [];
    const cpu: number[] = [];
    const seen: Record<'ours' | 'bare', number[]> = { ours: [], bare: [] };
    const p99: number[] = [];
    for (let round = 0; round <= rounds; round += 1) {
      const rates = { ours: 0, bare: 0 };
      const costs = { ours: 0, bare: 0 };
      for (const name of round % 2 === 0 ? (['ours', 'bare'] as const) : (['bare', 'ours'] as const)) {
        const before = await cpuSeconds(targets[name].pid);
        const result = await load(targets[name].port, `/api/v1/automations/${automationId}`, bench.workspaceKey);
        costs[name] = (await cpuSeconds(targets[name].pid)) - before;
        rates[name] = result.perSecond;
        if (name === 'ours') p99.push(result.p99Ms);
        if (result.refused > 0) throw new Error(`${name} refused ${result.refused} requests`);
      }
      // The first round warms both up.
      if (round === 0) continue;
      wall.push(rates.ours / rates.bare);
      cpu.push(rates.ours / costs.ours / (rates.bare / costs.bare));
      seen.ours.push(rates.ours);
      seen.bare.push(rates.bare);
    }
    const detail = `${range(wall, 2)}; ${median(seen.ours).toFixed(0)} against ${median(seen.bare).toFixed(0)} requests/s at ${connections} connections, p99 ${median(p99).toFixed(1)} ms; per CPU second ${median(cpu).toFixed(2)}`;
    return [
      {
        name: 'API read against a bare Bun.serve',
        value: median(wall).toFixed(2),
        goal: 'at least 0.7',
        met: median(wall) >= 0.7,
        detail,
      },
    ];
  } finally {
    bare.kill();
    await bare.exited;
  }
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
  return JSON.parse(await new Response(client.stdout).text()) as { perSecond: number; refused: number; p99Ms: number };
}
