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

/** Splits bytes into lines. A line over `maxLineBytes` is cut there, at a whole character, and the rest is dropped. */
export async function* splitLines(pieces: AsyncIterable<Uint8Array>): AsyncGenerator<SandboxLine> {
  let parts: Uint8Array[] = [];
  let length = 0;
  let number = 0;
  let seen = false;
  const take = (part: Uint8Array) => {
    seen ||= part.length > 0;
    const room = maxLineBytes - length;
    if (part.length > 0 && room > 0) parts.push(part.subarray(0, room).slice());
    length += part.length;
  };
  const line = (): SandboxLine => {
    number += 1;
    const cut = length > maxLineBytes;
    // A character that the cut went through would read as a replacement mark.
    const text = new TextDecoder().decode(parts.length === 1 ? parts[0] : Buffer.concat(parts), { stream: cut });
    parts = [];
    length = 0;
    seen = false;
    return { number, text, cut };
  };
  for await (const piece of pieces) {
    let start = 0;
    for (let end = piece.indexOf(10); end !== -1; end = piece.indexOf(10, start)) {
      take(piece.subarray(start, end));
      yield line();
      start = end + 1;
    }
    take(piece.subarray(start));
  }
  if (seen) yield line();
}
