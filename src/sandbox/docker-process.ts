import type Docker from 'dockerode';
import { asFailure, ask, isGoneOrDone } from './docker-engine.ts';
import { demultiplex, splitLines } from './docker-stream.ts';
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
 * Reads the output from its beginning. When the stream breaks while the process lives it is opened once more and goes
 * on behind the last line that was given.
 */
async function* linesOf(
  container: Docker.Container,
  counted: (pieces: AsyncIterable<Uint8Array>) => AsyncIterable<Uint8Array>,
  skip: number,
): AsyncGenerator<SandboxLine> {
  let given = skip;
  for (let attempt = 1; ; attempt += 1) {
    const stream = (await ask(
      container.logs({ follow: true, stdout: true, stderr: false }),
    )) as unknown as NodeJS.ReadableStream & { destroy(): void };
    try {
      for await (const line of splitLines(counted(demultiplex(stream as AsyncIterable<Uint8Array>, 'stdout')))) {
        if (line.number <= given) continue;
        given = line.number;
        yield line;
      }
    } catch (error) {
      if (attempt > 1) throw asFailure(error);
      continue;
    } finally {
      stream.destroy();
    }
    const { State } = await ask(container.inspect());
    if (!State.Running || attempt > 1) return;
  }
}

async function* once(piece: Uint8Array): AsyncGenerator<Uint8Array> {
  yield piece;
}
