import { type FileHandle, mkdir, open } from 'node:fs/promises';
import path from 'node:path';

/** Where a turn's raw stream is kept. */
export const rawFilePath = (directory: string, runId: string, turn: number): string =>
  path.join(directory, runId, `turn-${turn}.jsonl`);

/** The harness's own output of one turn, as it came, a line a line. */
export interface RawFile {
  /** How many whole lines it holds already: those of an earlier process of the server. */
  readonly lines: number;
  append(lines: readonly string[]): Promise<void>;
  /** Reaches the disk before it resolves. */
  close(): Promise<void>;
}

/**
 * Opens the file to go on where it ends; half a line at the end, left by a crash, is dropped. With `anew` it begins
 * empty: what an attempt left whose agent was never heard of again is not part of the turn.
 */
export async function openRawFile(
  directory: string,
  runId: string,
  turn: number,
  { anew = false }: { anew?: boolean } = {},
): Promise<RawFile> {
  const file = rawFilePath(directory, runId, turn);
  await mkdir(path.dirname(file), { recursive: true, mode: 0o700 });
  const handle = await open(file, 'a+', 0o600);
  const { lines, length } = anew ? { lines: 0, length: 0 } : await wholeLines(handle);
  await handle.truncate(length);
  return {
    lines,
    async append(more) {
      if (more.length > 0) await handle.appendFile(more.map((line) => `${line}\n`).join(''));
    },
    async close() {
      await handle.sync();
      await handle.close();
    },
  };
}

/** Counts line ends, and says where the last one is. */
async function wholeLines(handle: FileHandle): Promise<{ lines: number; length: number }> {
  const buffer = Buffer.alloc(256 * 1024);
  let lines = 0;
  let length = 0;
  let position = 0;
  for (;;) {
    const { bytesRead } = await handle.read(buffer, 0, buffer.length, position);
    if (bytesRead === 0) return { lines, length };
    const piece = buffer.subarray(0, bytesRead);
    for (let at = piece.indexOf(10); at !== -1; at = piece.indexOf(10, at + 1)) {
      lines += 1;
      length = position + at + 1;
    }
    position += bytesRead;
  }
}

/** A turn's raw stream for download, or undefined where nothing was printed. */
export async function rawTurn(
  directory: string,
  runId: string,
  turn: number,
): Promise<ReadableStream<Uint8Array> | undefined> {
  const file = Bun.file(rawFilePath(directory, runId, turn));
  return (await file.exists()) && file.size > 0 ? file.stream() : undefined;
}
