import { BadMessage, type Framing, type Header, parseHeader } from './http1.ts';

/** Takes a body off the wire. One per body; `feed` is called until `done`. */
export interface BodyDecoder {
  /** The whole body was read. Never true of a body that ends with its connection. */
  readonly done: boolean;
  readonly trailers: readonly Header[];
  /** Hands the data among `bytes` to `deliver` and answers how many bytes belong to this body. */
  feed(bytes: Buffer, deliver: (data: Buffer) => void): number;
}

/** Puts a body on the wire. */
export interface BodyEncoder {
  encode(data: Buffer): Buffer;
  /** What ends the body; trailers are dropped where the framing has no place for them. */
  finish(trailers: readonly Header[]): Buffer;
}

const maxLineBytes = 8 * 1024;
const maxTrailerBytes = 16 * 1024;
/** A reader that takes trailers for headers would see another message than we do. */
const notInTrailers = new Set(['connection', 'content-length', 'host', 'transfer-encoding', 'upgrade']);
const empty = Buffer.alloc(0);

export function decoderFor(framing: Framing): BodyDecoder {
  if (framing.kind === 'chunked') return new ChunkedDecoder();
  return new LengthDecoder(framing.kind === 'length' ? framing.length : framing.kind === 'none' ? 0 : Infinity);
}

export function encoderFor(chunked: boolean): BodyEncoder {
  return chunked ? chunkedEncoder : plainEncoder;
}

const plainEncoder: BodyEncoder = { encode: (data) => data, finish: () => empty };

const chunkedEncoder: BodyEncoder = {
  encode(data) {
    if (data.length === 0) return data;
    return Buffer.concat([Buffer.from(`${data.length.toString(16)}\r\n`), data, Buffer.from('\r\n')]);
  },
  finish: (trailers) =>
    Buffer.from(`0\r\n${trailers.map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\n`, 'latin1'),
};

class LengthDecoder implements BodyDecoder {
  readonly trailers: readonly Header[] = [];
  #left: number;

  constructor(length: number) {
    this.#left = length;
  }

  get done(): boolean {
    return this.#left === 0;
  }

  feed(bytes: Buffer, deliver: (data: Buffer) => void): number {
    const size = Math.min(this.#left, bytes.length);
    this.#left -= size;
    if (size > 0) deliver(size === bytes.length ? bytes : bytes.subarray(0, size));
    return size;
  }
}

/** Chunk extensions are read and dropped; every line must end with CR LF. */
class ChunkedDecoder implements BodyDecoder {
  done = false;
  readonly trailers: Header[] = [];
  #expects: 'size' | 'data' | 'data end' | 'trailer' = 'size';
  #left = 0;
  #line = '';
  #trailerBytes = 0;

  feed(bytes: Buffer, deliver: (data: Buffer) => void): number {
    let at = 0;
    while (at < bytes.length && !this.done) {
      at = this.#expects === 'data' ? this.#feedData(bytes, at, deliver) : this.#feedLine(bytes, at);
    }
    return at;
  }

  #feedData(bytes: Buffer, at: number, deliver: (data: Buffer) => void): number {
    const size = Math.min(this.#left, bytes.length - at);
    this.#left -= size;
    if (this.#left === 0) this.#expects = 'data end';
    deliver(bytes.subarray(at, at + size));
    return at + size;
  }

  #feedLine(bytes: Buffer, at: number): number {
    const lineEnd = bytes.indexOf(10, at);
    const end = lineEnd < 0 ? bytes.length : lineEnd + 1;
    this.#line += bytes.toString('latin1', at, end);
    if (this.#line.length > maxLineBytes) throw new BadMessage('a chunk line is too long');
    if (lineEnd < 0) return end;
    if (!this.#line.endsWith('\r\n')) throw new BadMessage('a chunk line ends with a line feed alone');
    const line = this.#line.slice(0, -2);
    this.#line = '';
    this.#readLine(line);
    return end;
  }

  #readLine(line: string): void {
    if (this.#expects === 'size') {
      // biome-ignore lint/suspicious/noControlCharactersInRegex: a chunk extension must hold no control character.
      const match = /^([0-9a-fA-F]{1,12})(?:;[^\0-\x08\x0a-\x1f\x7f]*)?$/.exec(line);
      if (!match) throw new BadMessage('a chunk size is not a hexadecimal number');
      this.#left = Number.parseInt(match[1] ?? '', 16);
      this.#expects = this.#left === 0 ? 'trailer' : 'data';
      return;
    }
    if (this.#expects === 'data end') {
      if (line !== '') throw new BadMessage('a chunk is longer than its size says');
      this.#expects = 'size';
      return;
    }
    if (line === '') {
      this.done = true;
      return;
    }
    this.#trailerBytes += line.length;
    if (this.#trailerBytes > maxTrailerBytes) throw new BadMessage('the trailers are too large');
    const trailer = parseHeader(line);
    if (notInTrailers.has(trailer[0].toLowerCase())) throw new BadMessage('a trailer speaks about the framing');
    this.trailers.push(trailer);
  }
}
