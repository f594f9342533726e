import type { HarnessConclusion, HarnessReader } from '../harness/harness.ts';
import type { StopReason } from '../runs/row.ts';
import type { SandboxExit, SandboxProcess } from '../sandbox/sandbox.ts';
import type { Recorder } from './recorder.ts';

/** A stopped agent gets this long between SIGTERM and SIGKILL. */
export const graceMs = 10_000;

/** What the outside may ask of a turn under way. */
export interface TurnControl {
  /** Aborted when a cancel was asked for. */
  readonly cancelled: AbortSignal;
  /** Aborted, with the error to throw, when this process must let go of the run: lease lost, or server stopping. */
  readonly letGo: AbortSignal;
}

/** What is known of an agent's stream so far; it is carried on when the stream has to be read again. */
export interface AgentProgress {
  /** Lines whose events are committed. */
  linesSeen: number;
  stopReason: StopReason | null;
}

export interface AgentEnd {
  readonly exit: SandboxExit;
  readonly conclusion: HarnessConclusion;
  readonly diagnostics: string;
}

export interface AgentWatch {
  readonly process: SandboxProcess;
  readonly reader: HarnessReader;
  readonly recorder: Recorder;
  readonly progress: AgentProgress;
  readonly control: TurnControl;
  /** Milliseconds until the agent has worked for as long as it may. */
  readonly remainingMs: number;
  /** Aborted when the run's model requests are used up. */
  readonly modelLimit: AbortSignal;
  /** Called when the agent is told to stop: what it does with its grace must not get out. Idempotent. */
  closeWays(): Promise<void>;
}

/**
 * Reads an agent's stream to its end and stops it when it may not go on. The reader is given every line, also those
 * whose events an earlier process of the server has written, so that it knows the whole turn when it concludes.
 * Throws what `letGo` was aborted with, and `SandboxFailure` when the engine goes away.
 */
export async function watchAgent(watch: AgentWatch): Promise<AgentEnd> {
  const { process, reader, recorder, progress, control } = watch;
  // A stop that fails shows as a process that goes on; the engine's failure itself reaches us through its stream.
  const stop = () => {
    void watch.closeWays().catch(() => {});
    void process.stop(graceMs).catch(() => {});
  };
  const stopBecause = (reason: StopReason) => {
    if (progress.stopReason === null && !control.cancelled.aborted) {
      progress.stopReason = reason;
      recorder.add([], { stopReason: reason });
    }
    stop();
  };
  const listening = new AbortController();
  whenAborted(control.cancelled, listening.signal, stop);
  whenAborted(watch.modelLimit, listening.signal, () => stopBecause('model_requests'));
  const timer = setTimeout(() => stopBecause('runtime_limit'), Math.max(0, watch.remainingMs));
  if (progress.stopReason !== null) stop();
  try {
    for await (const line of until(control.letGo, process.lines(0))) {
      const signals = reader.read(line.text);
      if (line.number <= progress.linesSeen) continue;
      progress.linesSeen = line.number;
      const session = signals.findLast((signal) => signal.kind === 'session');
      await recorder.line(
        line,
        signals.flatMap((signal) => (signal.kind === 'event' ? [signal.event] : [])),
        session ? { sessionId: session.sessionId } : {},
      );
    }
    const exit = await orLetGo(control.letGo, process.exit);
    if (exit.outputLimitReached && progress.stopReason === null) stopBecause('output_flood');
    return { exit, conclusion: reader.conclude(exit.code), diagnostics: await process.diagnostics() };
  } finally {
    clearTimeout(timer);
    listening.abort();
  }
}

function whenAborted(signal: AbortSignal, until: AbortSignal, then: () => void): void {
  if (signal.aborted) then();
  else signal.addEventListener('abort', then, { once: true, signal: until });
}

/** Resolves as `work` does, unless the signal is aborted first: then it throws the signal's reason. */
export function orLetGo<T>(signal: AbortSignal, work: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason);
    if (signal.aborted) abort();
    signal.addEventListener('abort', abort, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort));
  });
}

/** The same items, until the signal is aborted: then it throws the signal's reason without waiting for the next one. */
async function* until<T>(signal: AbortSignal, items: AsyncIterable<T>): AsyncGenerator<T> {
  const iterator = items[Symbol.asyncIterator]();
  try {
    for (;;) {
      const next = await orLetGo(signal, iterator.next());
      if (next.done) return;
      yield next.value;
    }
  } finally {
    // A source that waits for its next item answers `return` only after it: nobody waits for that here.
    iterator.return?.().then(undefined, () => {});
  }
}
