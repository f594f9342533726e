import { createHash } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { FrameReader, frameOf, type Piece } from '../../src/egress/websocket-frames.ts';
import type { Peer } from './origin.ts';

export interface Message {
  readonly kind: 'text' | 'binary';
  readonly data: string;
  /** How many frames it came in. */
  readonly frames: number;
}

/** Collects what one side reads: whole messages and control frames, in the order in which they ended. */
export function messageLog(masked: boolean) {
  const reader = new FrameReader(masked);
  const messages: (Message | Extract<Piece, { kind: 'control' }>)[] = [];
  let open = { data: '', frames: 0 };
  let changed = Promise.withResolvers<void>();
  return {
    messages,
    receive(bytes: Buffer) {
      for (const piece of reader.read(bytes)) {
        if (piece.kind === 'control') messages.push(piece);
        else {
          open.data += piece.payload.toString('latin1');
          if (piece.endsFrame) open.frames += 1;
          if (piece.endsMessage) {
            messages.push({ kind: piece.kind, ...open });
            open = { data: '', frames: 0 };
          }
        }
      }
      changed.resolve();
      changed = Promise.withResolvers();
    },
    /** What of an unfinished message has come. */
    unfinished: () => open.data,
    async until(holds: () => boolean) {
      while (!holds()) await changed.promise;
    },
    async atLeast(count: number) {
      while (messages.length < count) await changed.promise;
      return messages;
    },
  };
}

export const handshake = (host: string, headers = '') =>
  `GET /ws HTTP/1.1\r\nHost: ${host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n${headers}\r\n`;

/** Accepts a WebSocket in an origin. */
export function accept(request: IncomingMessage, socket: Socket, headers = ''): void {
  const key = createHash('sha1')
    .update(`${request.headers['sec-websocket-key']}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`)
    .digest('base64');
  socket.write(
    `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${key}\r\n${headers}\r\n`,
  );
}

/** Shakes hands as a client and collects what comes after it. */
export async function enter(peer: Peer, host: string, headers = '') {
  peer.send(handshake(host, headers));
  const all = await peer.until('\r\n\r\n');
  const end = all.indexOf('\r\n\r\n') + 4;
  peer.release();
  const log = messageLog(false);
  log.receive(Buffer.from(all.slice(end), 'latin1'));
  peer.socket.on('data', log.receive);
  const ended = new Promise<void>((resolve) => peer.socket.once('close', () => resolve()));
  peer.socket.on('end', () => peer.socket.end());
  const send = (opcode: number, final: boolean, data: string | Buffer) =>
    peer.send(frameOf(opcode, final, Buffer.from(data), true));
  return { head: all.slice(0, end), log, ended, send, raw: peer.send, end: () => void peer.socket.end() };
}
