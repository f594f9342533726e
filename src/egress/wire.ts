import type { Refusal } from './refusal.ts';

/** What a wire needs of a socket: Bun's own (plain or TLS), or an adapter with the same verbs. */
export interface Transport {
  /** Answers how many bytes were taken; fewer than given means that `Wire.flush` will be called when there is room. */
  write(bytes: Uint8Array): number;
  end(): void;
  terminate(): void;
  pause(): void;
  resume(): void;
}

/** Beyond this much unread or unsent the other side is held back: what a stalled peer can cost is bounded by it. */
const highWaterBytes = 128 * 1024;

const nothing = () => {};

/**
 * One byte stream with back-pressure both ways. One reader at a time: `take` until it gives nothing, then `more`.
 * The socket's handlers call `receive`, `flush`, `finish` and `drop`; everything else is for the proxy.
 */
export class Wire {
  /** When the sweeper ends this wire for being idle or slow; null for never. */
  deadlineAt: number | null = null;
  /** Called once, when the peer has hung up or the wire was destroyed. */
  onClose: () => void = nothing;
  /** Bytes that have arrived, and bytes that the socket has taken: the sweeper reads from them who is idle. */
  bytesIn = 0;
  bytesOut = 0;
  /** Why we have ended the wire, where that was a limit: what the ledger says of the request under way. */
  endedFor: Refusal | null = null;
  /** What a forward proxy on the way wants in the head of a plain request; null for none. */
  rewriteHead: ((head: Buffer) => Buffer) | null = null;
  readonly #transport: Transport;
  #incoming: Buffer[] = [];
  #incomingBytes = 0;
  #paused = false;
  #muted = false;
  #finished = false;
  #outgoing: Buffer[] = [];
  #outgoingBytes = 0;
  #ending = false;
  #closed = false;
  #wakeReader: (() => void) | null = null;
  #wakeWriter: (() => void) | null = null;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Nothing more can be written. What had arrived before can still be taken. */
  get closed(): boolean {
    return this.#closed;
  }

  /** The peer has hung up, or we have. */
  get gone(): boolean {
    return this.#finished || this.#closed;
  }

  /** Bytes have arrived that nobody has taken. */
  get hasUnread(): boolean {
    return this.#incoming.length > 0;
  }

  /** The peer is slower than the writer: await `drained` before writing more. */
  get congested(): boolean {
    return this.#outgoingBytes > highWaterBytes;
  }

  /** The bytes of this wire are read elsewhere, as those of the raw socket under TLS. */
  get muted(): boolean {
    return this.#muted;
  }

  /** The next piece that has arrived, of whatever size. */
  take(): Buffer | undefined {
    const piece = this.#incoming.shift();
    if (piece === undefined) return undefined;
    this.#incomingBytes -= piece.length;
    if (this.#paused && this.#incomingBytes <= highWaterBytes / 2) {
      this.#paused = false;
      if (!this.#closed) this.#transport.resume();
    }
    return piece;
  }

  /** Puts back what a reader has taken too much. */
  unread(bytes: Buffer): void {
    if (bytes.length === 0) return;
    this.#incoming.unshift(bytes);
    this.#incomingBytes += bytes.length;
  }

  /** Waits for something to take; false when the stream has ended. */
  async more(): Promise<boolean> {
    while (this.#incoming.length === 0) {
      if (this.#finished || this.#closed) return false;
      await new Promise<void>((resolve) => {
        this.#wakeReader = resolve;
      });
    }
    return true;
  }

  /** Sends, or queues what the socket does not take. A closed wire swallows it. */
  write(bytes: Buffer): void {
    if (this.#closed || this.#ending || bytes.length === 0) return;
    if (this.#outgoing.length > 0) {
      this.#queue(bytes);
      return;
    }
    const taken = Math.max(0, this.#transport.write(bytes));
    this.bytesOut += taken;
    if (taken < bytes.length) this.#queue(taken === 0 ? bytes : bytes.subarray(taken));
  }

  /** As `write`, for the head of a request to an origin. */
  writeHead(head: Buffer): void {
    this.write(this.rewriteHead === null ? head : this.rewriteHead(head));
  }

  /** Waits until the socket has taken everything, or is closed. */
  async drained(): Promise<void> {
    while (this.#outgoing.length > 0 && !this.#closed) {
      await new Promise<void>((resolve) => {
        this.#wakeWriter = resolve;
      });
    }
  }

  /** Sends what is queued, then closes. */
  end(): void {
    if (this.#closed || this.#ending) return;
    this.#ending = true;
    if (this.#outgoing.length === 0) this.#transport.end();
  }

  /** Closes at once; what is queued is lost. */
  destroy(): void {
    if (this.#closed) return;
    this.drop();
    this.#transport.terminate();
  }

  /** From here on arriving bytes are ignored: the raw socket under TLS goes on reporting its ciphertext. */
  mute(): void {
    this.#muted = true;
  }

  receive(bytes: Buffer): void {
    if (this.#muted || this.#closed) return;
    this.#incoming.push(bytes);
    this.#incomingBytes += bytes.length;
    this.bytesIn += bytes.length;
    if (!this.#paused && this.#incomingBytes > highWaterBytes) {
      this.#paused = true;
      this.#transport.pause();
    }
    this.#awaken();
  }

  flush(): void {
    for (let first = this.#outgoing[0]; first !== undefined; first = this.#outgoing[0]) {
      const taken = this.#transport.write(first);
      if (taken < 0) return;
      this.#outgoingBytes -= taken;
      this.bytesOut += taken;
      if (taken < first.length) {
        this.#outgoing[0] = first.subarray(taken);
        return;
      }
      this.#outgoing.shift();
    }
    if (this.#ending) this.#transport.end();
    this.#awaken();
  }

  /** The peer will send no more. HTTP has no use for a half-closed connection, so our half follows. */
  finish(): void {
    this.#finished = true;
    this.#awaken();
    this.end();
    this.#hangUp();
  }

  /** The socket is gone. */
  drop(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#outgoing = [];
    this.#outgoingBytes = 0;
    this.#awaken();
    this.#hangUp();
  }

  #queue(bytes: Buffer): void {
    this.#outgoing.push(bytes);
    this.#outgoingBytes += bytes.length;
  }

  #awaken(): void {
    const reader = this.#wakeReader;
    const writer = this.#wakeWriter;
    this.#wakeReader = null;
    this.#wakeWriter = null;
    reader?.();
    writer?.();
  }

  #hangUp(): void {
    const onClose = this.onClose;
    this.onClose = nothing;
    onClose();
  }
}

/** What Bun's sockets carry, so that one set of handlers serves every socket. */
export interface WireData {
  wire: Wire;
  /** Told how a TLS handshake ended, on either side. */
  onHandshake?: (ok: boolean, error: Error | null) => void;
}

/** The handlers that tie a Bun socket to the wire in its `data`. */
export const wireHandlers = {
  data(socket: Bun.Socket<WireData>, bytes: Buffer) {
    socket.data.wire.receive(bytes);
  },
  drain(socket: Bun.Socket<WireData>) {
    socket.data.wire.flush();
  },
  end(socket: Bun.Socket<WireData>) {
    socket.data.wire.finish();
  },
  close(socket: Bun.Socket<WireData>) {
    socket.data.wire.drop();
  },
  error(socket: Bun.Socket<WireData>) {
    socket.data.wire.destroy();
  },
  handshake(socket: Bun.Socket<WireData>, ok: boolean, error: Error | null) {
    socket.data.onHandshake?.(ok, error);
  },
} satisfies Bun.SocketHandler<WireData>;
