import type Docker from 'dockerode';
import { asFailure, ask, isGoneOrDone } from './docker-engine.ts';
import { linesOf } from './docker-lines.ts';
import { demultiplex, once } from './docker-stream.ts';
import type { SandboxExit, SandboxProcess } from './sandbox.ts';

const diagnosticsBytes = 64 * 1024;
/** A call that waits may die unseen together with its connection: so often the engine is asked anew. */
const lookMs = 15_000;
/** What a container that was removed ended with: that is done with SIGKILL. */
const removed = { ExitCode: 137, OOMKilled: false };

interface ProcessOptions {
  readonly maxOutputBytes: number;
  /** Aborted when the adapter is closed: nobody reads any more, and an open call would keep the server from ending. */
  readonly closing: AbortSignal;
  remove(): Promise<void>;
}

/** The container of an agent that was started, as the port shows it. */
export function dockerProcess(
  container: Docker.Container,
  { maxOutputBytes, closing, remove }: ProcessOptions,
): SandboxProcess {
  let outputLimitReached = false;
  const seenEnded = Promise.withResolvers<void>();

  async function stop(graceMs: number): Promise<void> {
    try {
      await ask(container.stop({ t: Math.ceil(graceMs / 1000) }), graceMs + 60_000);
    } catch (error) {
      if (!isGoneOrDone((error as Error).cause)) throw error;
    }
  }

  const exit = waitForEnd(container, seenEnded.promise, closing).then(
    ({ ExitCode, OOMKilled }): SandboxExit => ({ code: ExitCode, outOfMemory: OOMKilled, outputLimitReached }),
  );
  // Whoever asks for the exit sees the failure; nobody may ask.
  exit.catch(() => {});

  return {
    id: container.id,
    exit,
    lines: (skip) =>
      linesOf(container, skip, maxOutputBytes, closing, {
        ended: seenEnded.resolve,
        async flooded() {
          outputLimitReached = true;
          await stop(0);
        },
      }),
    diagnostics: () => lastOfStandardError(container),
    stop,
    remove,
  };
}

/** How the container ended, once it has. `seen` resolves when a reader of its output finds that. */
async function waitForEnd(
  container: Docker.Container,
  seen: Promise<void>,
  closing: AbortSignal,
): Promise<{ readonly ExitCode: number; readonly OOMKilled: boolean }> {
  for (;;) {
    const look = Promise.withResolvers<void>();
    const timer = setTimeout(look.resolve, lookMs);
    timer.unref();
    const waiting = new AbortController();
    const close = () => {
      waiting.abort();
      look.resolve();
    };
    if (closing.aborted) close();
    closing.addEventListener('abort', close, { once: true });
    // A call that fails is tried again with the next look: it is the state that tells whether the engine is there.
    const ended = container.wait({ condition: 'not-running', abortSignal: waiting.signal });
    await Promise.race([ended.catch(() => look.promise), seen, look.promise]);
    clearTimeout(timer);
    closing.removeEventListener('abort', close);
    waiting.abort();
    if (closing.aborted) throw asFailure(closing.reason);
    try {
      const { State } = await ask(container.inspect());
      if (!State.Running) return State;
    } catch (error) {
      if (isGoneOrDone((error as Error).cause)) return removed;
      throw error;
    }
  }
}

/** The engine counts the lines of both streams for a `tail`: an ended process is read whole, and the end is kept. */
async function lastOfStandardError(container: Docker.Container): Promise<string> {
  const { State } = await ask(container.inspect());
  const options = { stdout: false, stderr: true };
  const log = State.Running
    ? once(await ask(container.logs({ ...options, follow: false, tail: 2000 })))
    : ((await ask(container.logs({ ...options, follow: true }))) as unknown as AsyncIterable<Uint8Array>);
  let kept: Uint8Array = new Uint8Array();
  for await (const part of demultiplex(log, 'stderr')) {
    kept = Buffer.concat([kept, part]).subarray(-diagnosticsBytes);
  }
  return new TextDecoder().decode(kept);
}
