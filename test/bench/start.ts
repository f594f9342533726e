import { type Figure, median, range, residentMiB } from './figures.ts';
import { type Bench, serve } from './server.ts';

const starts = 9;
/** A server that has just started still has to settle. */
const settleMs = 3000;

/** The server's start from source, and its memory when nothing is asked of it. */
export async function measureStart(bench: Bench): Promise<Figure[]> {
  const times: number[] = [];
  for (let start = 0; start <= starts; start += 1) {
    await using server = await serve(bench);
    // The first start fills the caches of the file system.
    if (start > 0) times.push(server.startMs);
    // What the server does behind its first answers, the self-test's sandbox above all, is not to slow the next start.
    await Bun.sleep(settleMs);
  }
  await using server = await serve(bench);
  await Bun.sleep(settleMs);
  const memory = await residentMiB(server.pid);
  return [
    {
      name: 'Start to first answer, from source',
      value: `${median(times).toFixed(0)} ms`,
      goal: '150 ms',
      met: median(times) <= 150,
      detail: `${range(times)} ms over ${starts} starts`,
    },
    {
      name: 'Resident memory, idle',
      value: `${memory.toFixed(0)} MiB`,
      goal: '100 MB',
      met: memory * 1.048576 <= 100,
      detail: `${settleMs / 1000} s after the start`,
    },
  ];
}
