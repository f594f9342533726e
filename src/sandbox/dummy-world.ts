import { join } from 'node:path';
import type { DummyProcess } from './dummy-process.ts';
import { maxOutputBytes, type SandboxFailureReason } from './sandbox.ts';

/** A container of the dummy engine: one turn of one run. */
export interface DummyContainer {
  readonly runId: string;
  readonly turn: number;
  readonly command: readonly string[];
  readonly environment: Readonly<Record<string, string>>;
  /** Null for one that was made but never started. */
  process: DummyProcess | null;
}

/** What the dummy engine keeps of a run. */
export interface DummyRun {
  readonly directory: string;
  readonly containers: Map<number, DummyContainer>;
  hasVolumes: boolean;
  /** Whether any turn was ever started: archives are unpacked until then. */
  hasStarted: boolean;
}

/** The engine behind dummy sandboxes. It outlives their adapters, so that a test can restart its server. */
export interface DummyWorld {
  /** While set, the engine does not answer: every call fails, and so does the reading of lines under way. */
  engineDown: boolean;
  /** While set, the sandbox image is not there. */
  imageMissing: boolean;
  /** The next start fails for this reason, after its container was made. */
  failNextStart: SandboxFailureReason | null;
  /** Every start that succeeded, every stop and every removal that was asked for, oldest first. */
  readonly started: DummyContainer[];
  readonly stopped: { readonly runId: string; readonly turn: number; readonly graceMs: number }[];
  readonly removed: { readonly runId: string; readonly turn: number }[];
  readonly discarded: string[];
  /** Graces are no longer than this, so that a test of an agent that ignores SIGTERM is quick. */
  readonly maxGraceMs: number;
  /** A program that prints more is stopped: the port's own limit unless the test asks for a lower one. */
  readonly maxOutputBytes: number;
  readonly runs: Map<string, DummyRun>;
  /** The gate of a script's `gate` step; it may be opened before the script gets there. */
  gate(name: string): DummyGate;
  /** Resolves when a script waits at the gate, or has been there. */
  reached(name: string): Promise<void>;
  /** Kills the run's programs as an engine does that dies with them: 137. */
  kill(runId: string): void;
  /** The host directory of a run's workspace. */
  workspace(runId: string): string;
  /** Ends whatever still runs. The caller removes the directory. */
  close(): void;
}

export interface DummyGate {
  open(): void;
  readonly opened: Promise<void>;
  /** Called by the program that came to the gate. */
  arrive(): void;
  readonly reached: Promise<void>;
}

/** A new world. `directory` is a temporary directory of the test's own, which holds the volumes. */
export function createDummyWorld(options: {
  directory: string;
  maxGraceMs?: number;
  maxOutputBytes?: number;
}): DummyWorld {
  const runs = new Map<string, DummyRun>();
  const gates = new Map<string, DummyGate>();

  const gate = (name: string): DummyGate => {
    const known = gates.get(name);
    if (known) return known;
    const made = newGate();
    gates.set(name, made);
    return made;
  };

  let isDown = false;
  const processes = () =>
    [...runs.values()].flatMap((run) => [...run.containers.values()].flatMap(({ process }) => process ?? []));

  const kill = (runId: string) => {
    for (const container of runs.get(runId)?.containers.values() ?? []) container.process?.kill();
  };

  return {
    get engineDown() {
      return isDown;
    },
    set engineDown(down) {
      isDown = down;
      for (const process of processes()) process.nudge();
    },
    imageMissing: false,
    failNextStart: null,
    started: [],
    stopped: [],
    removed: [],
    discarded: [],
    maxGraceMs: options.maxGraceMs ?? 100,
    maxOutputBytes: options.maxOutputBytes ?? maxOutputBytes,
    runs,
    gate,
    reached: (name) => gate(name).reached,
    kill,
    workspace: (runId) => join(options.directory, runId, 'workspace'),
    close() {
      for (const process of processes()) process.kill();
    },
  };
}

function newGate(): DummyGate {
  const opened = Promise.withResolvers<void>();
  const reached = Promise.withResolvers<void>();
  return { open: opened.resolve, opened: opened.promise, arrive: reached.resolve, reached: reached.promise };
}
