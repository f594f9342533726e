import { maxLineBytes, type SandboxLine } from './sandbox.ts';

/**
 * The content of one of the two streams that the engine sends interleaved: frames of an 8-byte header (stream number,
 * three zeros, length as a big-endian number) and their bytes. A frame may be spread over several pieces.
 */
export async function* demultiplex(
  pieces: AsyncIterable<Uint8Array>,
  wanted: 'stdout' | 'stderr',
): AsyncGenerator<Uint8Array> {
  const number = wanted === 'stdout' ? 1 : 2;
  const header = new Uint8Array(8);
  let headerBytes = 0;
  let left = 0;
  for await (const piece of pieces) {
    let at = 0;
    while (at < piece.length) {
      if (left === 0) {
        const taken = Math.min(8 - headerBytes, piece.length - at);
        header.set(piece.subarray(at, at + taken), headerBytes);
        headerBytes += taken;
        at += taken;
        if (headerBytes < 8) continue;
        left = new DataView(header.buffer).getUint32(4);
        headerBytes = 0;
        continue;
      }
      const taken = Math.min(left, piece.length - at);
      if (header[0] === number) yield piece.subarray(at, at + taken);
      at += taken;
      left -= taken;
    }
  }
}

/** A line, and whether its end was seen. */
export type ReadLine = SandboxLine & { readonly ended: boolean };

const code = { more: 43, end: 46, last: 33, newline: 10 } as const;

/**
 * Puts the lines together that the relay in the sandbox (`sandbox/relay`) has taken to pieces: a piece is a line of
 * its own that begins with `+` (more follows), `.` (the line ends here) or `!` (the stream does). A line over
 * `maxLineBytes` is cut there, at a whole character, and the rest of it is dropped.
 */
export async function* joinLines(pieces: AsyncIterable<Uint8Array>): AsyncGenerator<ReadLine> {
  let parts: Uint8Array[] = [];
  let length = 0;
  let number = 0;
  let kind: number | null = null;
  let begun = false;
  const take = (part: Uint8Array) => {
    const room = maxLineBytes - length;
    if (part.length > 0 && room > 0) parts.push(part.subarray(0, room).slice());
    length += part.length;
  };
  const line = (ended: boolean): ReadLine => {
    number += 1;
    const cut = length > maxLineBytes;
    // A character that the cut went through would read as a replacement mark.
    const text = new TextDecoder().decode(parts.length === 1 ? parts[0] : Buffer.concat(parts), { stream: cut });
    parts = [];
    length = 0;
    begun = false;
    return { number, text, cut, ended };
  };
  for await (const piece of pieces) {
    for (let at = 0; at < piece.length; ) {
      if (kind === null) {
        kind = piece[at] ?? code.end;
        begun = true;
        at += 1;
        continue;
      }
      const end = piece.indexOf(code.newline, at);
      take(piece.subarray(at, end === -1 ? piece.length : end));
      if (end === -1) break;
      if (kind !== code.more) yield line(true);
      kind = null;
      at = end + 1;
    }
  }
  if (begun) yield line(false);
}

/** One piece as a stream of pieces. */
export async function* once(piece: Uint8Array): AsyncGenerator<Uint8Array> {
  yield piece;
}
