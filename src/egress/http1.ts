import { Refusal } from './refusal.ts';
import type { Wire } from './wire.ts';

/** A header as it stood on the wire: spelling, order and repetitions kept, bytes as latin-1. */
export type Header = readonly [name: string, value: string];

export interface RequestHead {
  readonly method: string;
  readonly target: string;
  readonly version: '1.0' | '1.1';
  readonly headers: readonly Header[];
  /** The whole head without its last empty line. */
  readonly text: string;
}

export interface ResponseHead {
  readonly version: '1.0' | '1.1';
  readonly status: number;
  readonly reason: string;
  readonly headers: readonly Header[];
}

/** How a body ends: at a length, with a last chunk, with the connection, or there is none. */
export type Framing =
  | { readonly kind: 'none' }
  | { readonly kind: 'length'; readonly length: number }
  | { readonly kind: 'chunked' }
  | { readonly kind: 'close' };

/** Bytes of a head, of a request or an answer, that are read before it is refused, unless settings say another number. */
export const maxHeadBytes = 64 * 1024;

/** What an HTTP message is refused for; the session makes it a 400, the upstream side a 502. */
export class BadMessage extends Error {
  override readonly name = 'BadMessage';
}

const headEnd = Buffer.from('\r\n\r\n');
const lineFeed = 10;
const carriageReturn = 13;
const token = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
const requestLine = /^([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([\x21-\x7e]+) HTTP\/(1\.[01])$/;
const statusLine = /^HTTP\/(1\.[01]) ([1-5]\d\d)(?: ([^\r\n\0]*))?$/;
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what a header value must not hold.
const forbiddenInValue = /[\0-\x08\x0a-\x1f\x7f]/;

/**
 * Reads up to the end of a head and answers its text as latin-1; null when the stream ended before its first byte.
 * Throws `BadMessage` for a lone line feed (at once: no end of head would ever come) and for a head that was cut
 * off, `Refusal` 431 for one that is too large.
 */
export async function readHead(wire: Wire, mostBytes = maxHeadBytes): Promise<string | null> {
  let held = wire.take();
  while (held === undefined) {
    if (!(await wire.more())) return null;
    held = wire.take();
  }
  let checked = 0;
  for (;;) {
    const end = held.indexOf(headEnd, Math.max(0, checked - 3));
    refuseLoneLineFeed(held, checked, end < 0 ? held.length : end);
    if ((end < 0 ? held.length : end) > mostBytes) {
      throw new Refusal('head_too_large', `The request's headers are larger than ${mostBytes / 1024} KiB.`);
    }
    if (end >= 0) {
      wire.unread(held.subarray(end + headEnd.length));
      return held.toString('latin1', 0, end);
    }
    checked = held.length;
    if (!(await wire.more())) throw new BadMessage('the connection ended inside the headers');
    held = Buffer.concat([held, wire.take() ?? Buffer.alloc(0)]);
  }
}

function refuseLoneLineFeed(bytes: Buffer, from: number, to: number): void {
  for (let at = bytes.indexOf(lineFeed, from); at >= 0 && at < to; at = bytes.indexOf(lineFeed, at + 1)) {
    if (bytes[at - 1] !== carriageReturn) throw new BadMessage('a line ends with a line feed alone');
  }
}

/** Reads a request's head strictly: what two readers could understand in two ways is thrown as `BadMessage`. */
export function parseRequestHead(text: string): RequestHead {
  const [first = '', ...lines] = text.split('\r\n');
  const match = requestLine.exec(first);
  if (!match) throw new BadMessage('the request line is not HTTP/1.1');
  const [, method = '', target = '', version] = match;
  return { method, target, version: version === '1.0' ? '1.0' : '1.1', headers: lines.map(parseHeader), text };
}

/** As `parseRequestHead`, for the head of an answer. */
export function parseResponseHead(text: string): ResponseHead {
  const [first = '', ...lines] = text.split('\r\n');
  const match = statusLine.exec(first);
  if (!match) throw new BadMessage('the status line is not HTTP/1.1');
  return {
    version: match[1] === '1.0' ? '1.0' : '1.1',
    status: Number(match[2]),
    reason: match[3] ?? '',
    headers: lines.map(parseHeader),
  };
}

/** One header line or trailer line. A folded line starts with white space and so has no valid name. */
export function parseHeader(line: string): Header {
  const colon = line.indexOf(':');
  const name = line.slice(0, Math.max(0, colon));
  if (!token.test(name)) throw new BadMessage('a header line has no valid name');
  const value = line.slice(colon + 1).replace(/^[ \t]+|[ \t]+$/g, '');
  if (forbiddenInValue.test(value)) throw new BadMessage('a header value holds a control character');
  return [name, value];
}

/** Every value of a header, by its name in lower case. */
export function valuesOf(headers: readonly Header[], name: string): string[] {
  const values: string[] = [];
  for (const header of headers) {
    if (header[0].length === name.length && header[0].toLowerCase() === name) values.push(header[1]);
  }
  return values;
}

/** The comma-separated words of a header, in lower case. */
export const wordsOf = (headers: readonly Header[], name: string): string[] =>
  valuesOf(headers, name)
    .join(',')
    .toLowerCase()
    .split(',')
    .map((word) => word.trim())
    .filter((word) => word !== '');

/** Throws `BadMessage` for every form that is used to smuggle one request inside another. */
export function requestFraming(head: RequestHead): Framing {
  const framing = declaredFraming(head.headers);
  if (framing.kind === 'chunked' && head.version === '1.0') throw new BadMessage('HTTP/1.0 has no chunked bodies');
  return framing.kind === 'close' || (framing.kind === 'length' && framing.length === 0) ? { kind: 'none' } : framing;
}

/** Throws `BadMessage` where the end of the answer's body is not certain. */
export function responseFraming(head: ResponseHead, method: string): Framing {
  if (method === 'HEAD' || head.status === 204 || head.status === 304) return { kind: 'none' };
  const framing = declaredFraming(head.headers);
  return framing.kind === 'length' && framing.length === 0 ? { kind: 'none' } : framing;
}

function declaredFraming(headers: readonly Header[]): Framing {
  const encodings = valuesOf(headers, 'transfer-encoding');
  const lengths = valuesOf(headers, 'content-length');
  if (encodings.length > 0) {
    if (lengths.length > 0) throw new BadMessage('Content-Length and Transfer-Encoding stand together');
    if (encodings.length > 1 || encodings[0]?.toLowerCase() !== 'chunked') {
      throw new BadMessage('the only Transfer-Encoding that is understood is chunked');
    }
    return { kind: 'chunked' };
  }
  const [length, ...others] = lengths;
  if (length === undefined) return { kind: 'close' };
  if (others.length > 0) throw new BadMessage('Content-Length stands twice');
  if (!/^\d{1,15}$/.test(length)) throw new BadMessage('Content-Length is not a number');
  return { kind: 'length', length: Number(length) };
}
