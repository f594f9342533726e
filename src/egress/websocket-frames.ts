import { randomFillSync } from 'node:crypto';

/** The kinds of RFC 6455 that matter here; others are refused. */
export const opcodes = { continuation: 0, text: 1, binary: 2, close: 8, ping: 9, pong: 10 } as const;

/** What close frames say about the end. */
export const closeCodes = { protocolError: 1002, policyViolation: 1008 } as const;

export type MessageKind = 'text' | 'binary';

/** What was read: a whole control frame, or a piece of a message's payload, without its mask. */
export type Piece =
  | { readonly kind: 'control'; readonly opcode: number; readonly payload: Buffer }
  | {
      readonly kind: MessageKind;
      readonly payload: Buffer;
      /** The piece is the last one of its frame. */
      readonly endsFrame: boolean;
      /** The piece is the last one of its message. */
      readonly endsMessage: boolean;
    };

/** Bytes that are no frames, or frames that no endpoint may send. */
export class BadFrame extends Error {
  override readonly name = 'BadFrame';
}

interface FrameHead {
  readonly final: boolean;
  readonly opcode: number;
  readonly length: number;
  readonly mask: Buffer | null;
}

const maxControlBytes = 125;
const empty = Buffer.alloc(0);

/** Takes frames apart as they arrive. It holds no more than a frame's head or a control frame. */
export class FrameReader {
  readonly #masked: boolean;
  #rest: Buffer = empty;
  #frame: FrameHead | null = null;
  #position = 0;
  #message: MessageKind | null = null;

  /** `masked`: whether this side must mask its frames, as clients must and servers must not. */
  constructor(masked: boolean) {
    this.#masked = masked;
  }

  /** Throws `BadFrame`. */
  *read(bytes: Buffer): Generator<Piece> {
    let left = this.#rest.length === 0 ? bytes : Buffer.concat([this.#rest, bytes]);
    this.#rest = empty;
    for (;;) {
      if (this.#frame === null) {
        const size = headSize(left);
        if (left.length < size) break;
        this.#frame = this.#readHead(left, size);
        this.#position = 0;
        left = left.subarray(size);
      }
      const frame = this.#frame;
      const missing = frame.length - this.#position;
      const isControl = frame.opcode >= opcodes.close;
      if (missing > 0 && (left.length === 0 || (isControl && left.length < missing))) break;
      const payload = this.#unmasked(left.subarray(0, missing), frame);
      left = left.subarray(payload.length);
      this.#position += payload.length;
      const endsFrame = this.#position === frame.length;
      if (endsFrame) this.#frame = null;
      yield this.#pieceOf(frame, payload, endsFrame);
    }
    // What was read stays where it is; only the little that is left over is kept.
    this.#rest = Buffer.from(left);
  }

  #pieceOf(frame: FrameHead, payload: Buffer, endsFrame: boolean): Piece {
    if (frame.opcode >= opcodes.close) return { kind: 'control', opcode: frame.opcode, payload };
    const kind = this.#message ?? 'binary';
    const endsMessage = endsFrame && frame.final;
    if (endsMessage) this.#message = null;
    return { kind, payload, endsFrame, endsMessage };
  }

  #readHead(bytes: Buffer, size: number): FrameHead {
    const first = bytes[0] ?? 0;
    const second = bytes[1] ?? 0;
    const short = second & 0x7f;
    const length = short < 126 ? short : short === 126 ? bytes.readUInt16BE(2) : Number(bytes.readBigUInt64BE(2));
    const frame: FrameHead = {
      final: first >= 0x80,
      opcode: first & 0x0f,
      length,
      mask: second >= 0x80 ? Buffer.from(bytes.subarray(size - 4, size)) : null,
    };
    if ((first & 0x70) !== 0) throw new BadFrame('it uses an extension that was not agreed on');
    if ((frame.mask !== null) !== this.#masked) throw new BadFrame('only the frames of the client must be masked');
    if (!Number.isSafeInteger(length)) throw new BadFrame('it is too long');
    this.#follow(frame);
    return frame;
  }

  /** Which message a frame belongs to, by the order that the RFC allows. */
  #follow({ opcode, final, length }: FrameHead): void {
    if (opcode >= opcodes.close) {
      if (opcode > opcodes.pong || !final || length > maxControlBytes)
        throw new BadFrame('a control frame is malformed');
      return;
    }
    if (opcode > opcodes.binary) throw new BadFrame('its kind is unknown');
    if ((opcode === opcodes.continuation) !== (this.#message !== null)) throw new BadFrame('messages are mixed up');
    if (opcode !== opcodes.continuation) this.#message = opcode === opcodes.text ? 'text' : 'binary';
  }

  #unmasked(payload: Buffer, { mask }: FrameHead): Buffer {
    return mask === null ? payload : applyMask(payload, mask, this.#position);
  }
}

/** How many bytes the head takes, as far as can be told from what is there. */
function headSize(bytes: Buffer): number {
  if (bytes.length < 2) return 2;
  const second = bytes[1] ?? 0;
  const short = second & 0x7f;
  return 2 + (short < 126 ? 0 : short === 126 ? 2 : 8) + (second >= 0x80 ? 4 : 0);
}

/** The bytes with the mask put on or taken off, which is the same; `position` is that of the first in its frame. */
function applyMask(bytes: Buffer, mask: Buffer, position: number): Buffer {
  // Four bytes at a time: a copy of our own begins where words may begin.
  const copy = new Uint8Array((bytes.length + 3) & ~3);
  copy.set(bytes);
  const key = new Uint8Array([0, 1, 2, 3].map((index) => mask[(position + index) & 3] ?? 0));
  const words = new Uint32Array(copy.buffer);
  const word = new Uint32Array(key.buffer)[0] ?? 0;
  for (let index = 0; index < words.length; index++) words[index] = (words[index] ?? 0) ^ word;
  return Buffer.from(copy.buffer, 0, bytes.length);
}

/** One frame. A client's is masked with a key of its own, which nobody can foresee. */
export function frameOf(opcode: number, final: boolean, payload: Buffer, masked: boolean): Buffer {
  const size = payload.length;
  const lengthBytes = size < 126 ? 0 : size < 65536 ? 2 : 8;
  const head = Buffer.alloc(2 + lengthBytes);
  head[0] = (final ? 0x80 : 0) | opcode;
  head[1] = (masked ? 0x80 : 0) | (lengthBytes === 0 ? size : lengthBytes === 2 ? 126 : 127);
  if (lengthBytes === 2) head.writeUInt16BE(size, 2);
  if (lengthBytes === 8) head.writeBigUInt64BE(BigInt(size), 2);
  if (!masked) return Buffer.concat([head, payload]);
  const mask = randomFillSync(Buffer.alloc(4));
  return Buffer.concat([head, mask, applyMask(payload, mask, 0)]);
}

/** A close frame; the reason is cut to what fits. */
export function closeFrame(code: number, reason: string, masked: boolean): Buffer {
  const payload = Buffer.alloc(2 + Math.min(maxControlBytes - 2, Buffer.byteLength(reason)));
  payload.writeUInt16BE(code, 0);
  payload.write(reason, 2);
  return frameOf(opcodes.close, true, payload, masked);
}

/** The payload of a control frame that is as long as one may be at most. */
export const controlPayload = (payload: Buffer) => payload.subarray(0, maxControlBytes);
