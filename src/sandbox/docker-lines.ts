import type Docker from 'dockerode';
import { asFailure, ask } from './docker-engine.ts';
import { demultiplex, joinLines } from './docker-stream.ts';
import type { SandboxLine } from './sandbox.ts';

/** What a reader of a container's output is the first to see. */
export interface Seen {
  /** The container has ended. */
  ended(): void;
  /** It has printed more than it may; the reader ends once this has resolved. */
  flooded(): Promise<void>;
}

/**
 * Follows the output from its beginning while the process lives, then reads the log once more: the engine may end a
 * stream that it follows before the last lines of a process that has just ended, and a line without its end is whole
 * only then. A stream that breaks is opened once more. Lines that were given are not given again.
 */
export async function* linesOf(
  container: Docker.Container,
  skip: number,
  maxOutputBytes: number,
  closing: AbortSignal,
  seen: Seen,
): AsyncGenerator<SandboxLine> {
  let given = skip;
  let broken = 0;
  let full = false;
  const flooded = async () => {
    full = true;
    await seen.flooded();
  };
  for (let running = true; running && !full; ) {
    if (closing.aborted) throw asFailure(closing.reason);
    ({ Running: running } = (await ask(container.inspect())).State);
    if (!running) seen.ended();
    // The engine ends the stream of a process that has ended also when it is to follow it. Without that the client
    // would put the whole log into one buffer.
    const stream = (await ask(container.logs({ follow: true, stdout: true, stderr: false }))) as unknown as LogStream;
    const close = () => stream.destroy();
    if (closing.aborted) close();
    closing.addEventListener('abort', close, { once: true });
    try {
      const output = upTo(demultiplex(stream, 'stdout'), maxOutputBytes, flooded);
      for await (const { ended, ...line } of joinLines(output)) {
        if (line.number <= given || (running && !ended)) continue;
        given = line.number;
        yield line;
      }
    } catch (error) {
      broken += 1;
      if (broken > 1 || closing.aborted) throw asFailure(error);
      running = true;
    } finally {
      closing.removeEventListener('abort', close);
      stream.destroy();
    }
  }
}

/** The pieces until they are more than `most` bytes together: then `beyond` is called and nothing more is given. */
async function* upTo(
  pieces: AsyncIterable<Uint8Array>,
  most: number,
  beyond: () => Promise<void>,
): AsyncGenerator<Uint8Array> {
  let bytes = 0;
  for await (const piece of pieces) {
    bytes += piece.length;
    if (bytes > most) return await beyond();
    yield piece;
  }
}

type LogStream = AsyncIterable<Uint8Array> & { destroy(): void };
