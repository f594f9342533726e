import type Docker from 'dockerode';
import { asFailure, ask, isGoneOrDone } from './docker-engine.ts';
import { demultiplex, joinLines, once } from './docker-stream.ts';
import { maxOutputBytes, type SandboxExit, type SandboxLine, type SandboxProcess } from './sandbox.ts';

const diagnosticsBytes = 64 * 1024;

/** An agent's container as the port shows it. `exited` resolves when it has ended. */
export function dockerProcess(
  container: Docker.Container,
  exited: Promise<unknown>,
  remove: () => Promise<void>,
): SandboxProcess {
  let outputLimitReached = false;

  async function stop(graceMs: number): Promise<void> {
    try {
      await ask(container.stop({ t: Math.ceil(graceMs / 1000) }), graceMs + 60_000);
    } catch (error) {
      if (!isGoneOrDone((error as Error).cause)) throw error;
    }
  }

  async function* counted(pieces: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
    let bytes = 0;
    for await (const piece of pieces) {
      bytes += piece.length;
      if (bytes > maxOutputBytes) {
        outputLimitReached = true;
        await stop(0);
        return;
      }
      yield piece;
    }
  }

  const exit = exited.then(async (): Promise<SandboxExit> => {
    const { State } = await ask(container.inspect());
    return { code: State.ExitCode, outOfMemory: State.OOMKilled, outputLimitReached };
  });
  // Whoever asks for the exit sees the failure; nobody may ask.
  exit.catch(() => {});

  return {
    id: container.id,
    exit,
    lines: (skip) => linesOf(container, counted, skip),
    async diagnostics() {
      const log = await ask(container.logs({ follow: false, stdout: false, stderr: true, tail: 2000 }));
      const parts: Uint8Array[] = [];
      for await (const part of demultiplex(once(log), 'stderr')) parts.push(part);
      return new TextDecoder().decode(Buffer.concat(parts).subarray(-diagnosticsBytes));
    },
    stop,
    remove,
  };
}

/**
 * Follows the output from its beginning while the process lives, then reads the log once more: the engine may end a
 * stream that it follows before the last lines of a process that has just ended, and a line without its end is whole
 * only then. A stream that breaks is opened once more. Lines that were given are not given again.
 */
async function* linesOf(
  container: Docker.Container,
  counted: (pieces: AsyncIterable<Uint8Array>) => AsyncIterable<Uint8Array>,
  skip: number,
): AsyncGenerator<SandboxLine> {
  let given = skip;
  let broken = 0;
  for (let running = true; running; ) {
    ({ Running: running } = (await ask(container.inspect())).State);
    const stream = (await ask(container.logs({ follow: running as true, stdout: true, stderr: false }))) as unknown as
      | LogStream
      | Buffer;
    const pieces = Buffer.isBuffer(stream) ? once(stream) : stream;
    try {
      for await (const { ended, ...line } of joinLines(counted(demultiplex(pieces, 'stdout')))) {
        if (line.number <= given || (running && !ended)) continue;
        given = line.number;
        yield line;
      }
    } catch (error) {
      broken += 1;
      if (broken > 1) throw asFailure(error);
      running = true;
    } finally {
      if (!Buffer.isBuffer(stream)) stream.destroy();
    }
  }
}

type LogStream = AsyncIterable<Uint8Array> & { destroy(): void };
