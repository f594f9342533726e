import type { Transform } from 'node:stream';
import {
  constants,
  createBrotliDecompress,
  createGunzip,
  createInflate,
  createInflateRaw,
  createZstdDecompress,
} from 'node:zlib';

/** Takes what was unpacked; a promise holds the unpacking back until the reader has room again. */
export type Deliver = (data: Buffer) => void | Promise<void>;

/** Unpacks one body. It never holds more than about 64 KiB of what a few bytes can unpack to. Call `close` after it. */
export interface ContentDecoder {
  /** Unpacks all that these bytes give, without waiting for more. Throws `UnreadableContent`. */
  decode(bytes: Buffer, deliver: Deliver): Promise<void>;
  /** The body has ended. Throws `UnreadableContent` when it breaks off. */
  finish(deliver: Deliver): Promise<void>;
  close(): void;
}

/** A body that is not what its Content-Encoding says. */
export class UnreadableContent extends Error {
  override readonly name = 'UnreadableContent';
}

const chunkSize = 64 * 1024;
/** The window that RFC 9659 sets for zstd on the web is 8 MiB: a larger one is a way to take memory. */
const zstdWindowLog = 23;
const maxCodings = 3;

type Open = (first: number) => Transform;

const gunzip: Open = () => createGunzip({ flush: constants.Z_SYNC_FLUSH, chunkSize });
/** By the standard deflate has zlib's two bytes in front, whose first ends in 8; some servers leave them out. */
const inflate: Open = (first) =>
  ((first & 0x0f) === 8 ? createInflate : createInflateRaw)({ flush: constants.Z_SYNC_FLUSH, chunkSize });
const unbrotli: Open = () => createBrotliDecompress({ flush: constants.BROTLI_OPERATION_FLUSH, chunkSize });
const unzstd: Open = () =>
  createZstdDecompress({
    flush: constants.ZSTD_e_flush,
    chunkSize,
    params: { [constants.ZSTD_d_windowLogMax]: zstdWindowLog },
  });

const decoders = new Map<string, Open>([
  ['gzip', gunzip],
  ['x-gzip', gunzip],
  ['deflate', inflate],
  ['br', unbrotli],
  ['zstd', unzstd],
]);

/** What unpacks these codings; null where one is not known. */
export function contentDecoder(codings: readonly string[]): ContentDecoder | null {
  if (codings.length > maxCodings) return null;
  const opens = codings.toReversed().map((coding) => decoders.get(coding));
  if (!opens.every((open) => open !== undefined)) return null;
  return opens.map(decoderOf).reduce(chain);
}

const chain = (first: ContentDecoder, second: ContentDecoder): ContentDecoder => ({
  decode: (bytes, deliver) => first.decode(bytes, (data) => second.decode(data, deliver)),
  async finish(deliver) {
    await first.finish((data) => second.decode(data, deliver));
    await second.finish(deliver);
  },
  close() {
    first.close();
    second.close();
  },
});

/** One stream of node:zlib, read by hand: what it does not have to unpack yet stays packed. */
function decoderOf(open: Open): ContentDecoder {
  let stream: Transform | null = null;
  let failure: UnreadableContent | null = null;
  let wake = () => {};

  function opened(first: number): Transform {
    const created = open(first);
    created.on('readable', () => wake());
    created.on('end', () => wake());
    created.on('error', () => {
      failure = new UnreadableContent('The body is not what its Content-Encoding says.');
      wake();
    });
    return created;
  }

  /** Reads what there is, again and again, until `isDone`. */
  async function drain(source: Transform, deliver: Deliver, isDone: () => boolean): Promise<void> {
    for (;;) {
      const data: Buffer | null = failure === null ? source.read() : null;
      if (failure !== null) throw failure;
      if (data !== null) {
        await deliver(data);
        continue;
      }
      if (isDone()) return;
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
    }
  }

  return {
    async decode(bytes, deliver) {
      if (bytes.length === 0) return;
      stream ??= opened(bytes[0] ?? 0);
      let done = false;
      stream.write(bytes, () => {
        done = true;
        wake();
      });
      await drain(stream, deliver, () => done);
    },
    async finish(deliver) {
      if (stream === null) return;
      const source = stream;
      source.end();
      await drain(source, deliver, () => source.readableEnded);
    },
    close() {
      stream?.destroy();
    },
  };
}
