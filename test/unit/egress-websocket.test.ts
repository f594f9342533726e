import { describe, expect, test } from 'bun:test';
import { BadFrame, closeFrame, FrameReader, frameOf, opcodes, type Piece } from '../../src/egress/websocket-frames.ts';

const read = (reader: FrameReader, bytes: Buffer): Piece[] => [...reader.read(bytes)];

/** The same pieces whatever the cuts: payloads of one frame joined. */
function joined(pieces: readonly Piece[]): Piece[] {
  const result: Piece[] = [];
  for (const piece of pieces) {
    const last = result.at(-1);
    if (piece.kind !== 'control' && last !== undefined && last.kind !== 'control' && !last.endsFrame) {
      result[result.length - 1] = { ...piece, payload: Buffer.concat([last.payload, piece.payload]) };
    } else result.push(piece);
  }
  return result;
}

describe('frames', () => {
  for (const size of [0, 1, 125, 126, 65_535, 65_536]) {
    test(`${size} bytes, masked and not, come out as they went in, at any cut`, () => {
      const payload = Buffer.alloc(size, 'payload ');
      for (const masked of [true, false]) {
        const frame = frameOf(opcodes.text, true, payload, masked);
        if (masked && size > 8) expect(frame.includes(payload.subarray(0, 8))).toBe(false);
        for (const step of [1, 3, 7, 1024, frame.length]) {
          if (size > 1000 && step < 1024) continue;
          const reader = new FrameReader(masked);
          const pieces: Piece[] = [];
          for (let at = 0; at < frame.length; at += step) pieces.push(...read(reader, frame.subarray(at, at + step)));
          expect(joined(pieces)).toEqual([{ kind: 'text', payload, endsFrame: true, endsMessage: true }]);
        }
      }
    });
  }

  test('a control frame between fragments is whole and keeps its place', () => {
    const reader = new FrameReader(false);
    const frames = [
      frameOf(opcodes.binary, false, Buffer.from('one'), false),
      frameOf(opcodes.ping, true, Buffer.from('!'), false),
      frameOf(opcodes.continuation, true, Buffer.from('two'), false),
    ];
    expect(read(reader, Buffer.concat(frames))).toEqual([
      { kind: 'binary', payload: Buffer.from('one'), endsFrame: true, endsMessage: false },
      { kind: 'control', opcode: opcodes.ping, payload: Buffer.from('!') },
      { kind: 'binary', payload: Buffer.from('two'), endsFrame: true, endsMessage: true },
    ]);
  });

  test('the key of a mask is never the same twice', () => {
    const frames = Array.from({ length: 50 }, () =>
      frameOf(opcodes.text, true, Buffer.from('same'), true).toString('hex'),
    );
    expect(new Set(frames).size).toBe(50);
  });

  const text = (final: boolean) => frameOf(opcodes.text, final, Buffer.from('x'), false);
  const huge = Buffer.concat([Buffer.from([0x82, 127]), Buffer.alloc(8, 0xff)]);
  for (const [what, bytes] of Object.entries({
    'a compressed frame': Buffer.from([0xc1, 0]),
    'an unknown kind': Buffer.from([0x83, 0]),
    'an unknown control frame': Buffer.from([0x8b, 0]),
    'a control frame in fragments': Buffer.from([0x09, 0]),
    'a long control frame': Buffer.from([0x89, 126, 0, 200]),
    'a masked frame of a server': frameOf(opcodes.text, true, Buffer.from('x'), true),
    'a continuation of nothing': frameOf(opcodes.continuation, true, Buffer.from('x'), false),
    'a message inside another one': Buffer.concat([text(false), text(true)]),
    'a length beyond counting': huge,
  })) {
    test(`${what} is refused`, () => {
      expect(() => read(new FrameReader(false), bytes)).toThrow(BadFrame);
    });
  }

  test('the reason of a close frame is cut to what fits', () => {
    const [piece] = read(new FrameReader(false), closeFrame(1008, 'why '.repeat(100), false));
    expect(piece?.payload.length).toBe(125);
    expect(piece?.payload.readUInt16BE(0)).toBe(1008);
  });
});
