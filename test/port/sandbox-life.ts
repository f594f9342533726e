import { expect } from 'bun:test';
import { newId } from '../../src/kernel/id.ts';
import { SandboxFailure } from '../../src/sandbox/sandbox.ts';
import { tarStream } from './sandbox-door.ts';
import { type Declare, linesOf, openRun, printed, type SandboxUnderTest } from './sandbox-run.ts';

/** What point 6 promises: looking at the volumes of a run. */
export function inspectPromises(promise: Declare, under: () => SandboxUnderTest): void {
  const inspect = (runId: string, script: string, more: { maxOutputBytes?: number; timeoutMs?: number } = {}) =>
    under().sandbox.inspect({
      runId,
      command: ['sh', '-c', script],
      workingDirectory: '/workspace',
      environment: { CONFORMANCE: 'seen' },
      maxOutputBytes: 1024,
      timeoutMs: 60_000,
      ...more,
    });
  const text = (output: Uint8Array) => new TextDecoder().decode(output);

  promise('6 inspect sees what the run wrote, once its container is gone', async (run) => {
    await (await run.ended({ kind: 'write', path: '/workspace/made.txt', text: 'by the agent' })).remove();
    const result = await inspect(run.id, 'cat /workspace/made.txt; echo " $CONFORMANCE"; pwd >&2');
    expect({ ...result, output: text(result.output) }).toEqual({ code: 0, output: 'by the agent seen\n', cut: false });
  });

  promise('6 inspect reports the exit status and cuts long output', async (run) => {
    await run.ended({ kind: 'hello' });
    const result = await inspect(run.id, 'head -c 5000 /dev/zero | tr "\\0" a; exit 7', { maxOutputBytes: 100 });
    expect({ ...result, output: text(result.output) }).toEqual({ code: 7, output: 'a'.repeat(100), cut: true });
  });

  promise('6 inspect that takes too long fails and is ended', async (run) => {
    await run.ended({ kind: 'hello' });
    await expect(inspect(run.id, 'exec sleep 3600', { timeoutMs: 100 })).rejects.toBeInstanceOf(SandboxFailure);
  });
}

/** What point 7 promises: a new process of the server finds what an earlier one has started. */
export function adoptionPromises(promise: Declare, under: () => SandboxUnderTest): void {
  promise('7 adopt finds a running process, and no line is lost or repeated', async (run) => {
    const path = '/workspace/go';
    const before = await run.start({ kind: 'await_file', path });
    await printed(before, 'before');
    const sandbox = await under().reopen();
    const adopted = await sandbox.adopt(run.id, 1);
    if (!adopted) throw new Error('The running process was not found');
    await sandbox.inspect({
      runId: run.id,
      command: ['touch', path],
      workingDirectory: '/workspace',
      maxOutputBytes: 100,
      timeoutMs: 60_000,
    });
    expect(await linesOf(adopted, 1)).toEqual(['after']);
    expect(await linesOf(adopted)).toEqual(['before', 'after']);
    expect(await adopted.exit).toMatchObject({ code: 0, outOfMemory: false });
    await sandbox.close();
  });

  promise('7 adopt finds a process that has ended, with its lines and status', async (run) => {
    await run.ended({ kind: 'exit3' });
    const sandbox = await under().reopen();
    const adopted = await sandbox.adopt(run.id, 1);
    expect((await adopted?.exit)?.code).toBe(3);
    expect(adopted && (await linesOf(adopted))).toEqual(['leaving']);
    await adopted?.stop(0);
    await adopted?.remove();
    expect(await sandbox.adopt(run.id, 1)).toBeUndefined();
    await sandbox.close();
  });

  promise('7 adopt can stop a process that an earlier server started', async (run) => {
    await printed(await run.start({ kind: 'wait' }), 'ready');
    const sandbox = await under().reopen();
    const adopted = await sandbox.adopt(run.id, 1);
    await adopted?.stop(3_600_000);
    expect((await adopted?.exit)?.code).toBe(143);
    await sandbox.close();
  });

  promise('7 adopt finds nothing for an unknown run, another turn, or a start that failed', async (run) => {
    expect(await under().sandbox.adopt(newId(), 1)).toBeUndefined();
    const broken = { path: '/workspace/repository', open: () => tarStream([{ name: 'a', text: 'a' }], 'breaks') };
    await expect(run.start({ kind: 'hello' }, { archives: [broken] })).rejects.toThrow();
    expect(await under().sandbox.adopt(run.id, 1)).toBeUndefined();
    await run.ended({ kind: 'hello' });
    expect(await under().sandbox.adopt(run.id, 2)).toBeUndefined();
  });

  promise('7 close leaves processes running', async (run) => {
    const sandbox = await under().reopen();
    const process = await run.start({ kind: 'wait' }, {}, sandbox);
    await printed(process, 'ready');
    await sandbox.close();
    const adopted = await under().sandbox.adopt(run.id, 1);
    await adopted?.stop(1000);
    expect((await adopted?.exit)?.code).toBe(143);
  });
}

/** What point 8 promises, and that runs are apart from each other. */
export function discardPromises(promise: Declare, under: () => SandboxUnderTest): void {
  const leftover = async (runId: string) => (await under().sandbox.leftovers()).find((each) => each.runId === runId);

  promise('8 discard removes containers and volumes, whatever runs, and is idempotent', async (run) => {
    const { sandbox } = under();
    await printed(await run.start({ kind: 'wait' }), 'ready');
    await sandbox.discard(run.id);
    await sandbox.discard(run.id);
    expect(await sandbox.hasVolumes(run.id)).toBe(false);
    expect(await sandbox.adopt(run.id, 1)).toBeUndefined();
    expect(await leftover(run.id)).toBeUndefined();
    await sandbox.discard(newId());
  });

  promise('8 leftovers tell containers from volumes', async (run) => {
    const process = await run.ended({ kind: 'hello' });
    expect(await leftover(run.id)).toEqual({ runId: run.id, hasContainers: true, hasVolumes: true });
    await process.remove();
    expect(await leftover(run.id)).toEqual({ runId: run.id, hasContainers: false, hasVolumes: true });
  });

  promise('9 runs side by side do not disturb each other', async (run) => {
    await using other = await openRun(under());
    const waiting = await run.start({ kind: 'wait' });
    await printed(waiting, 'ready');
    const path = '/workspace/same.txt';
    expect(await other.output({ kind: 'write', path, text: 'of the other' })).toEqual(['written']);
    expect(await other.output({ kind: 'read', path }, { turn: 2 })).toEqual(['of the other']);
    await under().sandbox.discard(other.id);
    expect(await under().sandbox.hasVolumes(run.id)).toBe(true);
    await waiting.stop(1000);
    expect((await waiting.exit).code).toBe(143);
    expect(await run.output({ kind: 'read', path }, { turn: 2 })).toEqual([]);
  });
}
