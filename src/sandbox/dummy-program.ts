import { mkdir, readFile, stat, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { askModel, requestThroughProxy } from './dummy-door.ts';
import type { DummyProcess } from './dummy-process.ts';
import type { DummyLine, DummyScript, DummyStep } from './dummy-schema.ts';
import type { DummyVolumes } from './dummy-volumes.ts';
import type { DummyWorld } from './dummy-world.ts';
import type { SandboxSpec } from './sandbox.ts';

const filePollMs = 5;

export interface DummyStage {
  readonly world: DummyWorld;
  readonly spec: SandboxSpec;
  readonly volumes: DummyVolumes;
  readonly process: DummyProcess;
}

/** Plays the script to its end or the process's. It never throws: what goes wrong is the program's own death. */
export async function play(script: DummyScript, stage: DummyStage): Promise<void> {
  const { process } = stage;
  try {
    if (script.sessionId !== null) say(process, { type: 'session', sessionId: script.sessionId });
    for (const step of script.steps) {
      if (process.dead.aborted) return;
      await perform(step, stage);
    }
    process.end({ code: 0, outOfMemory: false });
  } catch (error) {
    process.complain(error instanceof Error ? error.message : String(error));
    process.end({ code: 1, outOfMemory: false });
  }
}

/** Whether the program pays no heed to SIGTERM. */
export const ignoresStop = (script: DummyScript): boolean => script.steps.some((step) => step.do === 'ignore_stop');

function say(process: DummyProcess, line: DummyLine): void {
  process.print(JSON.stringify(line));
}

async function perform(step: DummyStep, stage: DummyStage): Promise<void> {
  const { process, spec, volumes, world } = stage;
  const hostPath = (path: string) => volumes.hostPath(path.startsWith('/') ? path : join(spec.workingDirectory, path));
  const tell = (told: { command: string; output: string; exitCode: number }, isRaw: boolean) => {
    if (isRaw) return process.print(told.output.replace(/\n$/, ''));
    say(process, { type: 'tool', ...told });
  };
  const exitCodeOf = (status: number) => (status < 400 ? 0 : 22);

  switch (step.do) {
    case 'print':
      return process.print(step.line);
    case 'complain':
      return process.complain(step.line);
    case 'message':
      return say(process, { type: 'message', text: step.text });
    case 'tool':
      return say(process, { type: 'tool', command: step.command, output: step.output, exitCode: step.exitCode });
    case 'write': {
      const path = hostPath(step.path);
      await mkdir(dirname(path), { recursive: true });
      await writeFile(path, step.content);
      if (!step.quiet) say(process, { type: 'file', path: step.path });
      return;
    }
    case 'read':
      return tell(
        { command: `cat ${step.path}`, output: await readFile(hostPath(step.path), 'utf8'), exitCode: 0 },
        step.raw,
      );
    case 'environment': {
      const value = spec.environment[step.name];
      if (value === undefined) throw new Error(`There is no variable ${step.name}`);
      return tell({ command: `printenv ${step.name}`, output: value, exitCode: 0 }, step.raw);
    }
    case 'where':
      return process.print(spec.workingDirectory);
    case 'model': {
      const answer = await askModel(spec.socketDirectory, step.prompt, process.dead);
      if (answer.ok) return say(process, { type: 'message', text: answer.text });
      say(process, { type: 'error', message: answer.text });
      return process.end({ code: 1, outOfMemory: false });
    }
    case 'gateway': {
      const unix = join(spec.socketDirectory, 'gateway.sock');
      const response = await fetch(`http://127.0.0.1:3129${step.path}`, { unix, signal: process.dead });
      const output = await response.text();
      return tell({ command: `GET ${step.path}`, output, exitCode: exitCodeOf(response.status) }, step.raw);
    }
    case 'request': {
      const { status, body } = await requestThroughProxy(spec.socketDirectory, step.url, step.headers, process.dead);
      return tell({ command: `GET ${step.url}`, output: body, exitCode: exitCodeOf(status) }, step.raw);
    }
    case 'await_file':
      return awaitFile(hostPath(step.path), process.dead);
    case 'wait':
    case 'ignore_stop':
      await process.exit;
      return;
    case 'gate': {
      const gate = world.gate(step.name);
      gate.arrive();
      await Promise.race([gate.opened, process.exit]);
      return;
    }
    case 'print_forever':
      for (let count = 1; !process.dead.aborted; count += 1) {
        process.print(`line ${count}`);
        await process.readersCaughtUp();
      }
      return;
    case 'exit':
      return process.end({ code: step.code, outOfMemory: step.outOfMemory });
  }
}

/** As a shell loop would: whoever makes the file is another process, which tells nobody. */
async function awaitFile(path: string, dead: AbortSignal): Promise<void> {
  while (!dead.aborted) {
    const isThere = await stat(path).then(
      () => true,
      () => false,
    );
    if (isThere) return;
    await Bun.sleep(filePollMs);
  }
}
