import { maxLineBytes, type SandboxExit, type SandboxLine } from './sandbox.ts';

const readAheadLines = 1000;
const maxDiagnosticsLength = 64 * 1024;

/** What a dummy container does while it lives: it prints, it can be signalled, and it ends once. */
export class DummyProcess {
  readonly exit: Promise<SandboxExit>;
  readonly #lines: SandboxLine[] = [];
  readonly #dead = new AbortController();
  readonly #ignoresStop: boolean;
  readonly #maxOutputBytes: number;
  readonly #resolveExit: (exit: SandboxExit) => void;
  #change = Promise.withResolvers<void>();
  #furthestRead = 0;
  #printedBytes = 0;
  #diagnostics = '';

  constructor(options: { ignoresStop: boolean; maxOutputBytes: number }) {
    this.#ignoresStop = options.ignoresStop;
    this.#maxOutputBytes = options.maxOutputBytes;
    const { promise, resolve } = Promise.withResolvers<SandboxExit>();
    this.exit = promise;
    this.#resolveExit = resolve;
  }

  /** Aborted when the process has ended: whatever it waits for is given up. */
  get dead(): AbortSignal {
    return this.#dead.signal;
  }

  get diagnostics(): string {
    return this.#diagnostics;
  }

  /** Adds the text's lines to the output; nothing after the end, for a dead process prints nothing. */
  print(text: string): void {
    if (this.dead.aborted) return;
    for (const line of text.split('\n')) this.#lines.push(numberedLine(this.#lines.length + 1, line));
    this.#printedBytes += Buffer.byteLength(text) + 1;
    if (this.#printedBytes > this.#maxOutputBytes) {
      this.end({ code: 137, outOfMemory: false, outputLimitReached: true });
    }
    this.nudge();
  }

  complain(line: string): void {
    this.#diagnostics = `${this.#diagnostics}${line}\n`.slice(-maxDiagnosticsLength);
  }

  /** Resolves when the readers have caught up, or the process has ended. */
  async readersCaughtUp(): Promise<void> {
    while (!this.dead.aborted && this.#lines.length - this.#furthestRead >= readAheadLines) await this.#change.promise;
  }

  /** Calls `requireEngine`, which throws when the engine is away, before each line and whenever it was nudged. */
  async *lines(skip: number, requireEngine: () => void): AsyncGenerator<SandboxLine> {
    for (let index = skip; ; ) {
      requireEngine();
      const line = this.#lines[index];
      if (line) {
        index += 1;
        if (index > this.#furthestRead) {
          this.#furthestRead = index;
          this.nudge();
        }
        yield line;
      } else if (this.dead.aborted) {
        return;
      } else {
        await this.#change.promise;
      }
    }
  }

  terminate(): void {
    if (!this.#ignoresStop) this.end({ code: 143, outOfMemory: false });
  }

  kill(): void {
    this.end({ code: 137, outOfMemory: false });
  }

  /** The first end counts. */
  end(exit: SandboxExit): void {
    if (this.dead.aborted) return;
    this.#dead.abort();
    this.#resolveExit(exit);
    this.nudge();
  }

  /** Makes whoever waits look again. */
  nudge(): void {
    this.#change.resolve();
    this.#change = Promise.withResolvers();
  }
}

function numberedLine(number: number, text: string): SandboxLine {
  // No character takes more than three bytes for each UTF-16 unit, so short lines need no counting.
  if (text.length * 3 <= maxLineBytes) return { number, text, cut: false };
  const bytes = new TextEncoder().encode(text);
  if (bytes.length <= maxLineBytes) return { number, text, cut: false };
  // Streaming leaves out a character that the cut has split.
  const head = new TextDecoder().decode(bytes.subarray(0, maxLineBytes), { stream: true });
  return { number, text: head, cut: true };
}
