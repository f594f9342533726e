import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { dummySandbox } from '../../src/sandbox/dummy.ts';
import { type DummyStepInput, dummyScriptPath } from '../../src/sandbox/dummy-schema.ts';
import { createDummyWorld } from '../../src/sandbox/dummy-world.ts';
import { maxLineBytes } from '../../src/sandbox/sandbox.ts';
import { sandboxConformance } from './sandbox.ts';
import { type ConformanceProgram, wideCharacters } from './sandbox-programs.ts';

sandboxConformance('dummy', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'slipway-dummy-'));
  const world = createDummyWorld({ directory });
  return {
    sandbox: dummySandbox(world),
    reopen: async () => dummySandbox(world),
    program: (program) => ({
      command: ['dummy'],
      files: [{ path: dummyScriptPath, content: JSON.stringify({ sessionId: null, steps: stepsOf(program) }) }],
    }),
    spec: (asked) => ({ ...asked, limits: { memoryBytes: 64 * 1024 * 1024, cpus: 1, processes: 64 } }),
    async dispose() {
      world.close();
      await rm(directory, { recursive: true });
    },
  };
});

function stepsOf(program: ConformanceProgram): DummyStepInput[] {
  const print = (line: string) => ({ do: 'print', line }) as const;
  switch (program.kind) {
    case 'hello':
      return [print('hello')];
    case 'lines':
      return Array.from({ length: program.count }, (_, index) => print(`line ${index + 1}`));
    case 'unended':
      return [print('first\nlast')];
    case 'wide':
      return [print(`x${'€'.repeat(wideCharacters)}`), print('after')];
    case 'long':
      return [print('a'.repeat(maxLineBytes + 10)), print('after')];
    case 'exit3':
      return [print('leaving'), { do: 'exit', code: 3 }];
    case 'wait':
      return [print('ready'), { do: 'wait' }];
    case 'ignore_stop':
      return [print('ready'), { do: 'ignore_stop' }];
    case 'await_file':
      return [print('before'), { do: 'await_file', path: program.path }, print('after')];
    case 'write':
      return [{ do: 'write', path: program.path, content: program.text, quiet: true }, print('written')];
    case 'read':
      return [{ do: 'read', path: program.path, raw: true }];
    case 'environment':
      return [{ do: 'environment', name: program.name, raw: true }];
    case 'where':
      return [{ do: 'where' }];
    case 'complain':
      return [
        { do: 'complain', line: 'trouble' },
        { do: 'exit', code: 1 },
      ];
    case 'gateway':
      return [{ do: 'gateway', path: program.path, raw: true }];
    case 'proxy':
      return [{ do: 'request', url: program.url, raw: true }];
    case 'out_of_memory':
      return [{ do: 'exit', code: 137, outOfMemory: true }];
  }
}
