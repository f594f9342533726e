/** Every occurrence of `needle` becomes `replacement`. */
export interface Replacement {
  readonly needle: Buffer;
  readonly replacement: Buffer;
}

interface IndexedReplacement extends Replacement {
  readonly index: number;
}

const empty = Buffer.alloc(0);

/**
 * Replaces in a stream, whatever its pieces: the outcome is that of one pass over the whole, leftmost match first,
 * the longest where several begin at one place. It holds back only a tail that is the beginning of a needle, so
 * that server-sent events are not delayed.
 */
export class Replacer {
  /** Positions (in the list given) of the needles that have occurred. */
  readonly found = new Set<number>();
  readonly #pairs: readonly IndexedReplacement[];
  readonly #firstBytes: ReadonlySet<number>;
  readonly #longest: number;
  #tail: Buffer = empty;

  constructor(replacements: readonly Replacement[]) {
    this.#pairs = replacements
      .map(({ needle, replacement }, index) => ({ index, needle, replacement }))
      .filter((pair) => pair.needle.length > 0)
      .sort((a, b) => b.needle.length - a.needle.length);
    this.#firstBytes = new Set(this.#pairs.map((pair) => pair.needle[0] ?? 0));
    this.#longest = this.#pairs[0]?.needle.length ?? 0;
  }

  /** Answers what can be sent on already. */
  push(piece: Buffer): Buffer {
    return this.#run(piece, false);
  }

  /** Answers what was held back: the stream has ended. */
  finish(): Buffer {
    return this.#run(empty, true);
  }

  /** Answers what was held back and forgets it, for another replacer to go on with. */
  release(): Buffer {
    const tail = this.#tail;
    this.#tail = empty;
    return tail;
  }

  #run(piece: Buffer, last: boolean): Buffer {
    const bytes = this.#tail.length === 0 ? piece : Buffer.concat([this.#tail, piece]);
    this.#tail = empty;
    const parts: Buffer[] = [];
    const next = this.#pairs.map((pair) => bytes.indexOf(pair.needle));
    let done = 0;
    let held = last ? bytes.length : this.#heldFrom(bytes, 0);
    for (;;) {
      const match = this.#leftmost(bytes, next, done);
      // A match behind or at what may yet become another must wait: the other begins further left, or is longer.
      if (match === undefined || match.at >= held) break;
      parts.push(bytes.subarray(done, match.at), match.pair.replacement);
      this.found.add(match.pair.index);
      done = match.at + match.pair.needle.length;
      if (held < done) held = this.#heldFrom(bytes, done);
    }
    if (held < bytes.length) this.#tail = Buffer.from(bytes.subarray(held));
    if (parts.length === 0) return held === bytes.length ? bytes : bytes.subarray(0, held);
    parts.push(bytes.subarray(done, held));
    return Buffer.concat(parts);
  }

  #leftmost(bytes: Buffer, next: number[], from: number) {
    let best: { at: number; pair: IndexedReplacement } | undefined;
    for (const [position, pair] of this.#pairs.entries()) {
      let at = next[position] ?? -1;
      if (at >= 0 && at < from) {
        at = bytes.indexOf(pair.needle, from);
        next[position] = at;
      }
      if (at >= 0 && (best === undefined || at < best.at)) best = { at, pair };
    }
    return best;
  }

  /** Where the first tail begins that is the beginning of a needle and not the whole of it. */
  #heldFrom(bytes: Buffer, from: number): number {
    for (let at = Math.max(from, bytes.length - this.#longest + 1); at < bytes.length; at++) {
      if (!this.#firstBytes.has(bytes[at] ?? -1)) continue;
      const rest = bytes.length - at;
      for (const { needle } of this.#pairs) {
        if (rest < needle.length && bytes.compare(needle, 0, rest, at, bytes.length) === 0) return at;
      }
    }
    return bytes.length;
  }
}
