import { dirname } from 'node:path';
import { DummyProcess } from './dummy-process.ts';
import { ignoresStop, play } from './dummy-program.ts';
import { DummyScript, dummyScriptPath } from './dummy-schema.ts';
import { dummyVolumes } from './dummy-volumes.ts';
import type { DummyContainer, DummyRun, DummyWorld } from './dummy-world.ts';
import { type Sandbox, SandboxFailure, type SandboxProcess, type SandboxSpec } from './sandbox.ts';

/**
 * A sandbox without an engine, for flows: it plays the script that the dummy harness put among the spec's files,
 * whatever the command is, and keeps the volumes as folders in the world's directory. `inspect` really runs its
 * command, on the host, so that a flow sees a real diff.
 */
export function dummySandbox(world: DummyWorld): Sandbox {
  const requireEngine = () => {
    if (world.engineDown) throw new SandboxFailure('unavailable', 'The sandbox engine does not answer; start it');
  };

  const runOf = (runId: string): DummyRun => {
    const known = world.runs.get(runId);
    if (known) return known;
    const directory = dirname(world.workspace(runId));
    const made: DummyRun = { directory, containers: new Map(), hasVolumes: false, hasStarted: false };
    world.runs.set(runId, made);
    return made;
  };

  const removeContainer = (run: DummyRun, turn: number) => {
    run.containers.get(turn)?.process?.kill();
    run.containers.delete(turn);
  };

  const start = async (spec: SandboxSpec): Promise<SandboxProcess> => {
    requireEngine();
    if (world.imageMissing) {
      throw new SandboxFailure('image_missing', 'The sandbox image is missing; run `slipway sandbox build`');
    }
    const run = runOf(spec.runId);
    const volumes = dummyVolumes(run.directory);
    removeContainer(run, spec.turn);
    // What a start that failed has unpacked in part is not to be trusted.
    if (!run.hasStarted) await volumes.remove();
    await volumes.make();
    run.hasVolumes = true;

    const { runId, turn, command, environment } = spec;
    const container: DummyContainer = { runId, turn, command, environment, process: null };
    run.containers.set(turn, container);
    for (const archive of spec.archives) await volumes.unpack(archive);
    for (const file of spec.files) await volumes.put(file);
    if (world.failNextStart) {
      const reason = world.failNextStart;
      world.failNextStart = null;
      throw new SandboxFailure(reason, 'The sandbox could not be started; look at the engine');
    }

    const script = scriptOf(spec);
    const process = new DummyProcess({
      ignoresStop: script.success && ignoresStop(script.data),
      maxOutputBytes: world.maxOutputBytes,
    });
    container.process = process;
    run.hasStarted = true;
    world.started.push(container);
    if (script.success) {
      void play(script.data, { world, spec, volumes, process });
    } else {
      process.complain(`The dummy's script is missing or wrong: ${script.reason}`);
      process.end({ code: 127, outOfMemory: false });
    }
    return handle(container, process);
  };

  const handle = (container: DummyContainer, process: DummyProcess): SandboxProcess => {
    const { runId, turn } = container;
    return {
      id: `dummy-${runId}-${turn}`,
      lines: (skip) => process.lines(skip, requireEngine),
      exit: process.exit,
      async diagnostics() {
        requireEngine();
        return process.diagnostics;
      },
      async stop(graceMs) {
        requireEngine();
        world.stopped.push({ runId, turn, graceMs });
        process.terminate();
        if (process.dead.aborted) return;
        const timer = setTimeout(() => process.kill(), Math.min(graceMs, world.maxGraceMs));
        await process.exit;
        clearTimeout(timer);
      },
      async remove() {
        requireEngine();
        world.removed.push({ runId, turn });
        process.kill();
        const run = world.runs.get(runId);
        if (run?.containers.get(turn) === container) run.containers.delete(turn);
      },
    };
  };

  return {
    start,
    /** Its programs are scripts: there is no network that they could have. */
    async lookInside() {
      return [{ kind: 'network', what: 'a network', target: null, outcome: 'none', ok: true }];
    },
    async check() {
      if (world.engineDown) return { ok: false, reason: 'The sandbox engine does not answer; start it' };
      if (world.imageMissing) {
        return { ok: false, reason: 'The sandbox image is missing; run `slipway sandbox build`' };
      }
      return { ok: true, engine: 'dummy' };
    },
    async adopt(runId, turn) {
      requireEngine();
      const container = world.runs.get(runId)?.containers.get(turn);
      return container?.process ? handle(container, container.process) : undefined;
    },
    async inspect(task) {
      requireEngine();
      const run = world.runs.get(task.runId);
      if (!run?.hasVolumes) throw new SandboxFailure('failed', 'The run has no volumes to look at');
      return dummyVolumes(run.directory).run(task);
    },
    async hasVolumes(runId) {
      requireEngine();
      return world.runs.get(runId)?.hasVolumes ?? false;
    },
    async discard(runId) {
      requireEngine();
      world.discarded.push(runId);
      const run = world.runs.get(runId);
      if (!run) return;
      for (const turn of [...run.containers.keys()]) removeContainer(run, turn);
      world.runs.delete(runId);
      await dummyVolumes(run.directory).remove();
    },
    async leftovers() {
      requireEngine();
      return [...world.runs]
        .map(([runId, run]) => ({ runId, hasContainers: run.containers.size > 0, hasVolumes: run.hasVolumes }))
        .filter((each) => each.hasContainers || each.hasVolumes);
    },
    async close() {},
  };
}

function scriptOf(spec: SandboxSpec) {
  const file = spec.files.find((each) => each.path === dummyScriptPath);
  if (!file) return { success: false, reason: 'no such file was given' } as const;
  const text = typeof file.content === 'string' ? file.content : new TextDecoder().decode(file.content);
  try {
    return { success: true, data: DummyScript.parse(JSON.parse(text)) } as const;
  } catch (error) {
    return { success: false, reason: error instanceof Error ? error.message : String(error) } as const;
  }
}
