import type { Replacement } from './replace.ts';

const empty = Buffer.alloc(0);

/**
 * Many needles made ready for searching: a table says from two bytes how far the next place is where any needle can
 * end its first `window` bytes (the algorithm of Wu and Manber). One pass costs the same for one needle and for a
 * thousand, and most bytes are not looked at. Made once per set of secrets; streams share it.
 */
export class Needles {
  /** Every replacement is as long as its needle: what is redacted keeps its length. */
  readonly keepLength: boolean;
  readonly #longest: number;
  readonly #window: number;
  readonly #shifts = new Uint8Array(65536);
  readonly #byWindowEnd = new Map<number, Replacement[]>();
  readonly #byStart = new Map<number, Replacement[]>();
  readonly #firstBytes = new Uint8Array(256);

  /** Needles must have two bytes at least. */
  constructor(pairs: readonly Replacement[]) {
    const longestFirst = [...pairs].sort((a, b) => b.needle.length - a.needle.length);
    this.keepLength = pairs.every(({ needle, replacement }) => needle.length === replacement.length);
    this.#longest = longestFirst[0]?.needle.length ?? 0;
    this.#window = Math.min(255, longestFirst.at(-1)?.needle.length ?? 0);
    this.#shifts.fill(Math.max(1, this.#window - 1));
    for (const pair of longestFirst) this.#add(pair);
  }

  #add(pair: Replacement): void {
    const { needle } = pair;
    for (let end = 1; end < this.#window; end++) {
      const block = needle.readUInt16BE(end - 1);
      this.#shifts[block] = Math.min(this.#shifts[block] ?? 0, this.#window - 1 - end);
    }
    append(this.#byWindowEnd, needle.readUInt16BE(this.#window - 2), pair);
    append(this.#byStart, needle.readUInt16BE(0), pair);
    this.#firstBytes[needle[0] ?? 0] = 1;
  }

  /** The leftmost needle that is there whole, the longest where several begin. */
  find(bytes: Buffer, from: number): { at: number; pair: Replacement } | undefined {
    const window = this.#window;
    const shifts = this.#shifts;
    const length = bytes.length;
    for (let end = from + window - 1; end < length; ) {
      const block = ((bytes[end - 1] ?? 0) << 8) | (bytes[end] ?? 0);
      const shift = shifts[block] ?? 1;
      if (shift > 0) {
        end += shift;
        continue;
      }
      const at = end - window + 1;
      for (const pair of this.#byWindowEnd.get(block) ?? []) {
        if (at + pair.needle.length <= length && standsAt(bytes, at, pair.needle)) return { at, pair };
      }
      end += 1;
    }
    return undefined;
  }

  /** Where the first tail begins that is the beginning of a needle and not the whole of it. */
  heldFrom(bytes: Buffer, from: number): number {
    const last = bytes.length - 1;
    for (let at = Math.max(from, bytes.length - this.#longest + 1); at < last; at++) {
      if (this.#firstBytes[bytes[at] ?? 0] === 0) continue;
      for (const { needle } of this.#byStart.get(((bytes[at] ?? 0) << 8) | (bytes[at + 1] ?? 0)) ?? []) {
        if (bytes.length - at < needle.length && standsAt(bytes, at, needle)) return at;
      }
    }
    return last >= from && this.#firstBytes[bytes[last] ?? 0] === 1 ? last : bytes.length;
  }
}

function append(lists: Map<number, Replacement[]>, key: number, pair: Replacement): void {
  const list = lists.get(key);
  if (list === undefined) lists.set(key, [pair]);
  else list.push(pair);
}

/** Whether the needle, or as much of it as fits before the end, stands at a place. */
function standsAt(bytes: Buffer, at: number, needle: Buffer): boolean {
  const size = Math.min(needle.length, bytes.length - at);
  for (let index = 0; index < size; index++) {
    if (bytes[at + index] !== needle[index]) return false;
  }
  return true;
}

/**
 * Redacts one stream, whatever its pieces: the outcome is that of one pass over the whole, leftmost match first.
 * It holds back only a tail that is the beginning of a needle, so that an event is passed on when it arrives.
 */
export class Redactor {
  readonly #needles: Needles;
  #tail: Buffer = empty;

  constructor(needles: Needles) {
    this.#needles = needles;
  }

  /** Answers what can be sent on already. */
  push(piece: Buffer): Buffer {
    return this.#run(piece, false);
  }

  /** Answers what was held back: the stream has ended. */
  finish(): Buffer {
    return this.#run(empty, true);
  }

  #run(piece: Buffer, last: boolean): Buffer {
    const bytes = this.#tail.length === 0 ? piece : Buffer.concat([this.#tail, piece]);
    this.#tail = empty;
    const parts: Buffer[] = [];
    let done = 0;
    let held = last ? bytes.length : this.#needles.heldFrom(bytes, 0);
    for (;;) {
      const match = this.#needles.find(bytes, done);
      // A match behind or at what may yet become another must wait: the other begins further left, or is longer.
      if (match === undefined || match.at >= held) break;
      parts.push(bytes.subarray(done, match.at), match.pair.replacement);
      done = match.at + match.pair.needle.length;
      if (held < done) held = last ? bytes.length : this.#needles.heldFrom(bytes, done);
    }
    if (held < bytes.length) this.#tail = Buffer.from(bytes.subarray(held));
    if (parts.length === 0) return held === bytes.length ? bytes : bytes.subarray(0, held);
    parts.push(bytes.subarray(done, held));
    return Buffer.concat(parts);
  }
}
