/**
 * The sandbox port: containers that have no network and no secret.
 *
 * Protocol, for one turn of one run:
 *  1. `start(spec)` makes the run's two volumes where they are missing (`/workspace`, `/state`), puts the files and
 *     archives in, joins the network-less container to the run's door (a shim that leads 127.0.0.1:3128 to
 *     `<socketDirectory>/proxy.sock` and 127.0.0.1:3129 to `<socketDirectory>/gateway.sock`, both of which listen
 *     before `start` is called) and starts the command. It resolves when the command's process runs.
 *     It may be called again after a failure for the same run and turn: what an earlier call left is removed first.
 *  2. `process.lines(skip)` yields the command's standard output line by line from the line after `skip`, live, and
 *     ends when the process has ended and every line was given. It may be called again, with another `skip`.
 *  3. `process.exit` resolves once, when the process has ended, however that came.
 *  4. `process.stop(graceMs)` sends SIGTERM at once and SIGKILL after the grace; it is idempotent and safe at any time.
 *  5. `process.remove()` removes the turn's containers, never the volumes. Idempotent.
 *  6. `inspect(…)` runs a short trusted command on the volumes in a container of its own, without any door.
 *  7. `adopt(runId, turn)` finds the container of a turn that an earlier process of the server started.
 *  8. `discard(runId)` removes containers and volumes of a run. Idempotent.
 *
 * Different runs may be used concurrently; one run is used by one caller at a time.
 * Every failure of the engine is thrown as `SandboxFailure`; nothing else is expected.
 */
export interface Sandbox {
  /** Whether runs can be started now, and if not why, in one sentence that says what to do. */
  check(): Promise<SandboxHealth>;
  /**
   * Makes a sandbox as for an agent, tries from inside what must not be possible, and what must, and removes it. Both
   * sockets of the directory are made here. At least one attempt.
   */
  lookInside(look: LookInside): Promise<readonly Attempt[]>;
  start(spec: SandboxSpec): Promise<SandboxProcess>;
  /** Undefined when the turn has no container, or one that was made but never started. */
  adopt(runId: string, turn: number): Promise<SandboxProcess | undefined>;
  inspect(task: InspectTask): Promise<InspectResult>;
  /** Whether the run's volumes (its workspace and its harness state) still exist. */
  hasVolumes(runId: string): Promise<boolean>;
  discard(runId: string): Promise<void>;
  /** Runs of this installation that have containers or volumes, for the reaper. */
  leftovers(): Promise<Leftover[]>;
  /** Releases what the adapter holds (kept-alive connections, spare containers). Runs under way go on. */
  close(): Promise<void>;
}

export type SandboxHealth =
  | { readonly ok: true; readonly engine: string }
  | { readonly ok: false; readonly reason: string };

export type LookInside = Pick<SandboxSpec, 'socketDirectory' | 'limits'>;

/** One thing that was tried from inside a sandbox. */
export interface Attempt {
  /** What it was to show: no network, the door to the server, the agent's user, or that the means of trying work. */
  readonly kind: 'network' | 'door' | 'user' | 'means';
  /** What was looked for, without any address: callers may be told. */
  readonly what: string;
  /** The address or name, for whoever runs the server; null where there is none. */
  readonly target: string | null;
  /** What came of it, in a few words, for whoever runs the server. */
  readonly outcome: string;
  readonly ok: boolean;
}

export interface SandboxSpec {
  readonly runId: string;
  readonly turn: number;
  /** Program and arguments, run as the unprivileged user `agent` (uid 10001) under an init process. */
  readonly command: readonly string[];
  readonly workingDirectory: string;
  /** Beside these the adapter sets the proxy and CA variables of the door. Values are placeholders, never secrets. */
  readonly environment: Readonly<Record<string, string>>;
  /** Small files, written before the command starts, owned by `agent`. Paths are absolute, under /state or /workspace. */
  readonly files: readonly SandboxFile[];
  /**
   * Tar archives unpacked before the command starts. Given where the workspace is to be filled: the volumes keep it for
   * later turns. When the start fails, nothing of them is kept.
   */
  readonly archives: readonly SandboxArchive[];
  /** Host directory of the run's sockets, mounted into the shim alone. */
  readonly socketDirectory: string;
  /** PEM of the installation's CA, trusted inside beside the system's. */
  readonly caCertificate: string;
  readonly limits: SandboxLimits;
}

export interface SandboxFile {
  readonly path: string;
  readonly content: string | Uint8Array;
  /** Permission bits; 0o644 unless given. */
  readonly mode?: number;
}

export interface SandboxArchive {
  /** Directory, under /workspace or /state, made if missing. */
  readonly path: string;
  /** An uncompressed tar stream with entries relative to `path`; it is owned by `agent` once unpacked. */
  open(): ReadableStream<Uint8Array>;
}

export interface SandboxLimits {
  readonly memoryBytes: number;
  /** Processors, fractions allowed: 1.5 is one and a half. */
  readonly cpus: number;
  readonly processes: number;
}

export interface SandboxProcess {
  /** What the engine calls it: safe to log. */
  readonly id: string;
  lines(skip: number): AsyncIterable<SandboxLine>;
  readonly exit: Promise<SandboxExit>;
  /** The last 64 KiB of standard error, for diagnosis. */
  diagnostics(): Promise<string>;
  stop(graceMs: number): Promise<void>;
  remove(): Promise<void>;
}

export interface SandboxLine {
  /** Position in the stream, from 1. */
  readonly number: number;
  /** Without its line end. Lines over `maxLineBytes` are cut there and marked. */
  readonly text: string;
  readonly cut: boolean;
}

/** An agent that prints more than this in one turn is stopped: its output is kept on the engine's disk. */
export const maxOutputBytes = 256 * 1024 * 1024;

/** A longer line of the harness is cut: no event of a real one comes near, and a buffer must have an end. */
export const maxLineBytes = 4 * 1024 * 1024;

export interface SandboxExit {
  /** Exit status; 128 + signal when a signal ended it. */
  readonly code: number;
  /** The kernel killed a process of the container for its memory limit. */
  readonly outOfMemory: boolean;
  /** The command was stopped because it printed more than `maxOutputBytes`. */
  readonly outputLimitReached?: boolean;
}

export interface InspectTask {
  readonly runId: string;
  readonly command: readonly string[];
  readonly workingDirectory: string;
  readonly environment?: Readonly<Record<string, string>>;
  /** Standard output beyond this is dropped and `cut` set. */
  readonly maxOutputBytes: number;
  readonly timeoutMs: number;
}

export interface InspectResult {
  readonly code: number;
  readonly output: Uint8Array;
  readonly cut: boolean;
}

export interface Leftover {
  readonly runId: string;
  readonly hasContainers: boolean;
  readonly hasVolumes: boolean;
}

export type SandboxFailureReason = 'unavailable' | 'image_missing' | 'out_of_disk' | 'failed';

/** The engine did not do what was asked. `message` is one sentence with the mend; it names no path of the server. */
export class SandboxFailure extends Error {
  override readonly name = 'SandboxFailure';
  readonly reason: SandboxFailureReason;
  constructor(reason: SandboxFailureReason, message: string, cause?: unknown) {
    super(message, { cause });
    this.reason = reason;
  }
}
