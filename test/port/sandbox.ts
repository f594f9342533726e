import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import { tarStream } from './sandbox-door.ts';
import { adoptionPromises, discardPromises, inspectPromises } from './sandbox-life.ts';
import { processPromises } from './sandbox-process.ts';
import { type Declare, linesOf, openRun, printed, type SandboxUnderTest } from './sandbox-run.ts';

export type { SandboxUnderTest };

/** The promises of the sandbox port, numbered as its protocol is. `timeoutMs` is for one test. */
export function sandboxConformance(name: string, open: () => Promise<SandboxUnderTest>, timeoutMs = 5_000): void {
  describe(`sandbox port: ${name}`, () => {
    let under: SandboxUnderTest;
    beforeAll(async () => {
      under = await open();
    }, timeoutMs);
    afterAll(() => under.dispose(), timeoutMs);

    const promise: Declare = (what, body) =>
      test(
        what,
        async () => {
          await using run = await openRun(under);
          await body(run);
        },
        timeoutMs,
      );

    promise('0 check says that runs can be started', async () => {
      expect((await under.sandbox.check()).ok).toBe(true);
    });

    promise('1 start runs the command and its output and exit can be read', async (run) => {
      const process = await run.start({ kind: 'hello' });
      expect(await linesOf(process)).toEqual(['hello']);
      expect(await process.exit).toMatchObject({ code: 0, outOfMemory: false });
    });

    promise('1 start gives the command its files, environment and working directory', async (run) => {
      const note = { path: '/state/conformance/deep/note.txt', content: 'two\nlines\n' };
      expect(await run.output({ kind: 'read', path: note.path }, { files: [note] })).toEqual(['two', 'lines']);
      const environment = { CONFORMANCE: 'a value' };
      expect(await run.output({ kind: 'environment', name: 'CONFORMANCE' }, { environment, turn: 2 })).toEqual([
        'a value',
      ]);
      expect(await run.output({ kind: 'where' }, { turn: 3 })).toEqual(['/workspace']);
    });

    promise('1 start writes binary files as they are', async (run) => {
      const content = new Uint8Array([0xe2, 0x82, 0xac, 10]);
      expect(
        await run.output({ kind: 'read', path: '/state/raw' }, { files: [{ path: '/state/raw', content }] }),
      ).toEqual(['€']);
    });

    promise('1 start unpacks archives, and later turns find what they held', async (run) => {
      const archive = {
        path: '/workspace/unpacked',
        open: () => tarStream([{ name: 'inner/a.txt', text: 'first' }]),
      };
      const read = { kind: 'read', path: '/workspace/unpacked/inner/a.txt' } as const;
      expect(await run.output(read, { archives: [archive] })).toEqual(['first']);
      expect(await run.output(read, { turn: 2 })).toEqual(['first']);
    });

    promise('1 start leads the two ports of the door to the sockets of the run', async (run) => {
      expect(await run.output({ kind: 'gateway', path: '/v1/ping' })).toEqual(['gateway GET /v1/ping']);
      expect(await run.output({ kind: 'proxy', url: 'http://example.test/page' }, { turn: 2 })).toEqual([
        'proxy GET example.test /page',
      ]);
    });

    promise('1 start can be called again after it failed, and begins anew', async (run) => {
      const path = '/workspace/repository';
      const long = { name: 'long.txt', text: 'long'.repeat(50_000) };
      const broken = { path, open: () => tarStream([{ name: 'stray.txt', text: 'stray' }, long], 'breaks') };
      await expect(run.start({ kind: 'hello' }, { archives: [broken] })).rejects.toThrow();
      const whole = { path, open: () => tarStream([{ name: 'a.txt', text: 'whole' }]) };
      expect(await run.output({ kind: 'read', path: `${path}/a.txt` }, { archives: [whole] })).toEqual(['whole']);
      expect(await run.output({ kind: 'read', path: `${path}/stray.txt` }, { turn: 2 })).toEqual([]);
    });

    promise('1 start replaces what an earlier start of the same turn left', async (run) => {
      const first = await run.start({ kind: 'wait' });
      await printed(first, 'ready');
      const second = await run.start({ kind: 'hello' });
      expect(await linesOf(second)).toEqual(['hello']);
      expect((await second.exit).code).toBe(0);
      await first.exit;
    });

    processPromises(promise, () => under);
    inspectPromises(promise, () => under);
    adoptionPromises(promise, () => under);
    discardPromises(promise, () => under);
  });
}
