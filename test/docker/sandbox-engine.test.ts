import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import { mkdtemp, rm } from 'node:fs/promises';
import net from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { silentLog } from '../../src/kernel/log.ts';
import { dockerSandbox } from '../../src/sandbox/docker.ts';
import { labelOf } from '../../src/sandbox/docker-container.ts';
import { openEngine } from '../../src/sandbox/docker-engine.ts';
import { imageReference } from '../../src/sandbox/image.ts';
import { linesOf, openRun, printed, type SandboxUnderTest } from '../port/sandbox-run.ts';

const engineSocket = '/var/run/docker.sock';
const timeoutMs = 60_000;
const mebibyte = 1024 * 1024;

/** A socket in front of the engine's, whose connections can be cut. */
async function openWire(directory: string) {
  const socket = path.join(directory, 'engine.sock');
  const open = new Set<net.Socket>();
  const server = net.createServer((client) => {
    const engine = net.connect(engineSocket);
    open.add(client);
    client.pipe(engine).pipe(client);
    for (const end of [client, engine]) {
      end.on('error', () => {});
      end.on('close', () => {
        open.delete(client);
        client.destroy();
        engine.destroy();
      });
    }
  });
  await new Promise<void>((resolve) => server.listen(socket, resolve));
  return {
    dockerHost: `unix://${socket}`,
    cut() {
      for (const client of open) client.destroy();
    },
    close() {
      for (const client of open) client.destroy();
      return new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
}

describe('the Docker engine', () => {
  const installation = `test-${crypto.randomUUID().slice(0, 8)}`;
  let directory: string;
  beforeAll(async () => {
    directory = await mkdtemp(path.join(tmpdir(), 'slipway-wire-'));
  });
  afterAll(() => rm(directory, { recursive: true, force: true }));

  const open = (more: { dockerHost?: string; maxOutputBytes?: number } = {}) =>
    dockerSandbox({ dockerHost: null, image: imageReference(), installation, log: silentLog, ...more });

  const runOf = (script: string, sandbox = open(), processes = 64) => {
    const under: SandboxUnderTest = {
      sandbox,
      reopen: async () => open(),
      program: () => ({ command: ['/bin/bash', '-c', script], files: [] }),
      spec: (asked) => ({ ...asked, limits: { memoryBytes: 128 * mebibyte, cpus: 1, processes } }),
      dispose: async () => {},
    };
    return openRun(under);
  };

  test(
    'whose connections are cut loses no line, repeats none, and the exit is known',
    async () => {
      const wire = await openWire(directory);
      {
        await using run = await runOf(
          'for i in $(seq 50); do echo "line $i"; done; until [ -e /workspace/go ]; do sleep 0.05; done; echo last; exit 5',
          open({ dockerHost: wire.dockerHost }),
        );
        const process = await run.start({ kind: 'hello' });
        const seen: string[] = [];
        for await (const { text } of process.lines(0)) {
          seen.push(text);
          if (seen.length !== 50) continue;
          wire.cut();
          await open().inspect({
            runId: run.id,
            command: ['touch', '/workspace/go'],
            workingDirectory: '/workspace',
            maxOutputBytes: 100,
            timeoutMs,
          });
        }
        expect(seen).toEqual([...Array.from({ length: 50 }, (_, index) => `line ${index + 1}`), 'last']);
        expect((await process.exit).code).toBe(5);
      }
      await wire.close();
    },
    timeoutMs,
  );

  test(
    'that goes away fails what waits for it, as unavailable, and another adapter finds the run again',
    async () => {
      const wire = await openWire(directory);
      await using run = await runOf('echo ready; exec sleep 3600');
      const process = await run.start({ kind: 'hello' }, {}, open({ dockerHost: wire.dockerHost }));
      await printed(process, 'ready');
      const reading = linesOf(process);
      await wire.close();
      await expect(reading).rejects.toMatchObject({ name: 'SandboxFailure', reason: 'unavailable' });
      await expect(process.stop(0)).rejects.toMatchObject({ name: 'SandboxFailure', reason: 'unavailable' });
      const adopted = await open().adopt(run.id, 1);
      await adopted?.stop(0);
      expect((await adopted?.exit)?.code).toBeGreaterThanOrEqual(137);
    },
    timeoutMs,
  );

  test(
    'stops an agent that prints without end, and says so',
    async () => {
      const most = 2 * mebibyte;
      await using run = await runOf(
        'exec yes "$(head -c 1000 /dev/zero | tr "\\0" a)"',
        open({ maxOutputBytes: most }),
      );
      const process = await run.start({ kind: 'hello' });
      let bytes = 0;
      for await (const { text } of process.lines(0)) bytes += text.length;
      expect(bytes).toBeGreaterThan(most / 2);
      expect(bytes).toBeLessThanOrEqual(most);
      expect(await process.exit).toMatchObject({ outputLimitReached: true });
    },
    timeoutMs,
  );

  test(
    'keeps the standard error, however much is on the standard output after it',
    async () => {
      await using run = await runOf('echo early trouble >&2; seq 5000');
      const process = await run.ended({ kind: 'hello' });
      expect(await process.diagnostics()).toBe('early trouble\n');
    },
    timeoutMs,
  );

  test(
    'whose container is removed under the agent ends it',
    async () => {
      await using run = await runOf('echo ready; exec sleep 3600');
      const process = await run.start({ kind: 'hello' });
      await printed(process, 'ready');
      await process.remove();
      expect((await process.exit).code).toBe(137);
    },
    timeoutMs,
  );

  test(
    'has nothing left of a run that was discarded, of a start that failed, or of an inspection',
    async () => {
      const sandbox = open();
      await using run = await runOf('echo ready; exec sleep 3600', sandbox);
      await printed(await run.start({ kind: 'hello' }), 'ready');
      await sandbox.inspect({
        runId: run.id,
        command: ['true'],
        workingDirectory: '/workspace',
        maxOutputBytes: 100,
        timeoutMs,
      });
      // A limit that the engine refuses.
      const refused = await runOf('true', sandbox, Number.MAX_SAFE_INTEGER + 2);
      await expect(refused.start({ kind: 'hello' }, { archives: [] })).rejects.toMatchObject({
        name: 'SandboxFailure',
      });
      const docker = await openEngine(null)();
      const label = (runId: string) => ({ filters: { label: [`${labelOf.run}=${runId}`] } });
      const containers = async (runId: string) => docker.listContainers({ all: true, ...label(runId) });
      expect((await containers(run.id)).map(({ Labels }) => Labels[labelOf.role]).sort()).toEqual(['agent', 'door']);
      expect(await containers(refused.id)).toEqual([]);
      await refused[Symbol.asyncDispose]();
      await sandbox.discard(run.id);
      expect(await containers(run.id)).toEqual([]);
      for (const runId of [run.id, refused.id]) {
        const { Volumes } = await docker.listVolumes({ filters: JSON.stringify(label(runId).filters) as never });
        expect(Volumes ?? []).toEqual([]);
      }
    },
    timeoutMs,
  );
});
