import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { silentLog } from '../../src/kernel/log.ts';
import { dockerSandbox } from '../../src/sandbox/docker.ts';
import { imageReference } from '../../src/sandbox/image.ts';
import { sandboxConformance } from '../port/sandbox.ts';
import { shellProgram } from '../port/sandbox-programs.ts';

const limits = { memoryBytes: 128 * 1024 * 1024, cpus: 1, processes: 64 };

sandboxConformance(
  'docker',
  async () => {
    const directory = await mkdtemp(path.join(tmpdir(), 'slipway-docker-'));
    const installation = `test-${crypto.randomUUID().slice(0, 8)}`;
    const open = () => dockerSandbox({ dockerHost: null, image: imageReference(), installation, log: silentLog });
    const sandbox = open();
    return {
      sandbox,
      reopen: async () => open(),
      program: shellProgram,
      spec: (asked) => ({ ...asked, limits }),
      async dispose() {
        for (const { runId } of await sandbox.leftovers()) await sandbox.discard(runId);
        await rm(directory, { recursive: true, force: true });
      },
    };
  },
  60_000,
);
