import { expect } from 'bun:test';
import { maxLineBytes } from '../../src/sandbox/sandbox.ts';
import { wideCharacters } from './sandbox-programs.ts';
import { type Declare, linesOf, printed, type SandboxUnderTest } from './sandbox-run.ts';

/** What the protocol's points 2 to 5 promise of a process: its lines, its end, how it is stopped and removed. */
export function processPromises(promise: Declare, under: () => SandboxUnderTest): void {
  promise('2 lines are complete, in order and numbered from 1', async (run) => {
    const process = await run.start({ kind: 'lines', count: 2000 });
    const seen: string[] = [];
    for await (const line of process.lines(0)) {
      expect(line.cut).toBe(false);
      seen.push(`${line.number}:${line.text}`);
    }
    expect(seen).toEqual(Array.from({ length: 2000 }, (_, index) => `${index + 1}:line ${index + 1}`));
  });

  promise('2 lines can be left and taken up again without loss or repetition', async (run) => {
    const process = await run.start({ kind: 'lines', count: 300 });
    const seen: number[] = [];
    for await (const line of process.lines(0)) {
      seen.push(line.number);
      if (seen.length === 120) break;
    }
    for await (const line of process.lines(seen.length)) seen.push(line.number);
    expect(seen).toEqual(Array.from({ length: 300 }, (_, index) => index + 1));
    expect(await linesOf(process, 298)).toEqual(['line 299', 'line 300']);
    expect(await linesOf(process, 300)).toEqual([]);
    expect(await linesOf(process, 400)).toEqual([]);
  });

  promise('2 lines are live: the first comes while the process runs', async (run) => {
    const process = await run.start({ kind: 'wait' });
    await printed(process, 'ready');
    await process.stop(0);
  });

  promise('2 a last line without a line end is a line', async (run) => {
    expect(await run.output({ kind: 'unended' })).toEqual(['first', 'last']);
  });

  promise('2 characters of several bytes survive every border', async (run) => {
    const [wide, after] = await run.output({ kind: 'wide' });
    expect(wide === `x${'€'.repeat(wideCharacters)}`).toBe(true);
    expect(after).toBe('after');
  });

  promise('2 a line over the limit is cut, marked, and the next one is whole', async (run) => {
    const process = await run.start({ kind: 'long' });
    const seen: { length: number; cut: boolean; number: number }[] = [];
    for await (const line of process.lines(0)) {
      seen.push({ length: line.text.length, cut: line.cut, number: line.number });
    }
    expect(seen).toEqual([
      { length: maxLineBytes, cut: true, number: 1 },
      { length: 5, cut: false, number: 2 },
    ]);
  });

  promise('3 exit tells the status', async (run) => {
    const process = await run.start({ kind: 'exit3' });
    expect(await process.exit).toMatchObject({ code: 3, outOfMemory: false });
    expect(await linesOf(process)).toEqual(['leaving']);
  });

  promise('3 exit tells a death for the memory limit', async (run) => {
    const process = await run.start({ kind: 'out_of_memory' });
    expect(await process.exit).toMatchObject({ code: 137, outOfMemory: true });
  });

  promise('3 diagnostics hold the standard error, which is not among the lines', async (run) => {
    const process = await run.start({ kind: 'complain' });
    expect((await process.exit).code).toBe(1);
    expect(await process.diagnostics()).toContain('trouble');
    expect(await linesOf(process)).toEqual([]);
  });

  promise('4 stop ends the process by SIGTERM without waiting for the grace', async (run) => {
    const process = await run.start({ kind: 'wait' });
    await printed(process, 'ready');
    await process.stop(3_600_000);
    expect(await process.exit).toMatchObject({ code: 143, outOfMemory: false });
    expect(await linesOf(process)).toEqual(['ready']);
  });

  promise('4 stop kills after the grace', async (run) => {
    const process = await run.start({ kind: 'ignore_stop' });
    await printed(process, 'ready');
    await process.stop(50);
    expect(await process.exit).toMatchObject({ code: 137, outOfMemory: false });
  });

  promise('4 stop is idempotent, safe after the end and after remove', async (run) => {
    const process = await run.start({ kind: 'wait' });
    await printed(process, 'ready');
    await Promise.all([process.stop(1000), process.stop(1000)]);
    await process.stop(0);
    expect((await process.exit).code).toBe(143);
    await process.remove();
    await process.stop(0);
  });

  promise('5 remove is idempotent and keeps the volumes', async (run) => {
    const path = '/workspace/kept.txt';
    const first = await run.start({ kind: 'write', path, text: 'from turn 1' });
    expect(await linesOf(first)).toEqual(['written']);
    await first.remove();
    await first.remove();
    expect(await under().sandbox.hasVolumes(run.id)).toBe(true);
    expect(await under().sandbox.adopt(run.id, 1)).toBeUndefined();
    expect(await run.output({ kind: 'read', path }, { turn: 2 })).toEqual(['from turn 1']);
  });

  promise('5 remove of a running process ends it', async (run) => {
    const process = await run.start({ kind: 'wait' });
    await printed(process, 'ready');
    await process.remove();
    expect((await process.exit).code).not.toBe(0);
  });
}
