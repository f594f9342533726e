import { newId } from '../../src/kernel/id.ts';
import type { Sandbox, SandboxProcess, SandboxSpec } from '../../src/sandbox/sandbox.ts';
import { openDoor } from './sandbox-door.ts';
import type { ConformanceProgram, ProgramLaunch } from './sandbox-programs.ts';

export interface SandboxUnderTest {
  readonly sandbox: Sandbox;
  /** A new adapter on the same engine or world, as after a restart of the server. */
  reopen(): Promise<Sandbox>;
  program(program: ConformanceProgram): ProgramLaunch;
  /** Completes what the suite asks for with limits that suit the engine; 64 MiB or so makes `out_of_memory` quick. */
  spec(asked: Omit<SandboxSpec, 'limits'>): SandboxSpec;
  /** Ends what was opened; the suite has discarded its runs before. */
  dispose(): Promise<void>;
}

/** Text of every line from `skip` on; ends with the process. */
export async function linesOf(process: SandboxProcess, skip = 0): Promise<string[]> {
  const texts: string[] = [];
  for await (const line of process.lines(skip)) texts.push(line.text);
  return texts;
}

/** Resolves when the process has printed the text as a line. */
export async function printed(process: SandboxProcess, text: string): Promise<void> {
  for await (const line of process.lines(0)) if (line.text === text) return;
  throw new Error(`The process ended without the line ${text}`);
}

/** Declares one promise of the port as a test with a run of its own. */
export type Declare = (what: string, body: (run: RunOfTest) => Promise<void>) => void;

export type RunOfTest = Awaited<ReturnType<typeof openRun>>;

/** A run of its own with a door that answers; whatever it left is discarded at the end. */
export async function openRun(under: SandboxUnderTest) {
  const id = newId();
  const door = await openDoor();

  const start = (program: ConformanceProgram, more: Partial<SandboxSpec> = {}, sandbox = under.sandbox) => {
    const launch = under.program(program);
    return sandbox.start(
      under.spec({
        runId: id,
        turn: 1,
        workingDirectory: '/workspace',
        environment: {},
        archives: [],
        socketDirectory: door.directory,
        caCertificate: door.caCertificate,
        ...more,
        command: launch.command,
        files: [...launch.files, ...(more.files ?? [])],
      }),
    );
  };

  return {
    id,
    start,
    /** Starts, waits for the end and gives the lines. */
    async output(program: ConformanceProgram, more: Partial<SandboxSpec> = {}) {
      const process = await start(program, more);
      const texts = await linesOf(process);
      await process.exit;
      return texts;
    },
    /** Starts and waits for the end. */
    async ended(program: ConformanceProgram) {
      const process = await start(program);
      await process.exit;
      return process;
    },
    async [Symbol.asyncDispose]() {
      await under.sandbox.discard(id);
      await door.close();
    },
  };
}
