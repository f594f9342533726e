import { finished, type Transform } from 'node:stream';
import {
  constants,
  createBrotliDecompress,
  createGunzip,
  createInflate,
  createInflateRaw,
  createZstdDecompress,
} from 'node:zlib';
import { type Header, wordsOf } from './http1.ts';
import { Refusal } from './refusal.ts';

/** What a body looks like inside its Content-Encoding. */
export interface CodedReader {
  /** Hands the plain text of these bytes to the reader's owner. Throws `Refusal`. */
  push(data: Buffer): Promise<void>;
  /** The body has ended. Throws `Refusal` for one that is cut off. */
  finish(): Promise<void>;
  close(): void;
}

/** A body that becomes larger than this could keep the proxy busy for a few bytes: it is refused. */
export const maxDecodedBytes = 256 * 1024 * 1024;
/** What RFC 9659 allows for zstd on the web, 8 MiB; a larger window would cost that much memory. */
const zstdWindowLog = 23;

/** These leave the bytes readable. Amazon's is a framing of signed chunks around the plain body. */
const plainCodings: readonly string[] = ['identity', 'aws-chunked'];
const knownCodings: readonly string[] = ['gzip', 'x-gzip', 'deflate', 'br', 'zstd'];

const unsearchable = (why: string) =>
  new Refusal('body_unsearchable', `The request's body ${why}, so it cannot be searched for placeholders of secrets.`);

/** The codings of a body, in the order they were applied, without those that leave it readable. */
export const codingsOf = (headers: readonly Header[]): string[] =>
  wordsOf(headers, 'content-encoding').filter((coding) => !plainCodings.includes(coding));

/** Throws `Refusal` for what could not be decoded: what cannot be searched does not leave. */
export function refuseUnsearchable(codings: readonly string[]): void {
  if (codings.length > 1) throw unsearchable('is encoded more than once');
  if (codings.some((coding) => !knownCodings.includes(coding))) {
    throw unsearchable('has a Content-Encoding other than gzip, deflate, br and zstd');
  }
}

/**
 * Decodes a body on the side, to be searched; the body itself goes on as it is. `found` is given the plain text and
 * may throw.
 */
export function codedReader(codings: readonly string[], found: (plain: Buffer) => void): CodedReader {
  refuseUnsearchable(codings);
  const [coding = ''] = codings;
  let decoder: Transform | null = null;
  let failure: unknown = null;
  let decodedBytes = 0;
  let ended = Promise.withResolvers<void>();

  function start(first: number): Transform {
    const made = decoderFor(coding, first);
    made.on('data', (plain: Buffer) => {
      decodedBytes += plain.length;
      try {
        if (decodedBytes > maxDecodedBytes) throw unsearchable('is too large when it is decompressed');
        if (failure === null) found(plain);
      } catch (error) {
        failure ??= error;
        made.destroy();
      }
    });
    ended = Promise.withResolvers<void>();
    finished(made, (error) => {
      if (error) failure ??= unsearchable(`is not what its Content-Encoding (${coding}) says`);
      ended.resolve();
    });
    return made;
  }

  return {
    async push(data) {
      if (data.length === 0) return;
      decoder ??= start(data[0] ?? 0);
      const at = decoder;
      const { promise: taken, resolve } = Promise.withResolvers<void>();
      at.write(data, () => resolve());
      await Promise.race([taken, ended.promise]);
      // The callback may come before the last of the plain text was handed out.
      while (failure === null && at.readableLength > 0) await new Promise((resume) => setImmediate(resume));
      if (failure !== null) throw failure;
    },
    async finish() {
      if (decoder === null) return;
      decoder.end();
      await ended.promise;
      if (failure !== null) throw failure;
    },
    close() {
      failure ??= unsearchable('was not read to its end');
      decoder?.destroy();
    },
  };
}

function decoderFor(coding: string, firstByte: number): Transform {
  if (coding === 'br') return createBrotliDecompress();
  if (coding === 'zstd') return createZstdDecompress({ params: { [constants.ZSTD_d_windowLogMax]: zstdWindowLog } });
  if (coding !== 'deflate') return createGunzip();
  // Some clients send deflate without the zlib wrapper, which begins with 8 in its lower half byte.
  return (firstByte & 0x0f) === 8 ? createInflate() : createInflateRaw();
}
