import { Duplex } from 'node:stream';
import { createSecureContext, TLSSocket } from 'node:tls';
import type { Leaf } from './authority.ts';
import { Wire, type WireData, wireHandlers } from './wire.ts';

/** The server's end of a TLS connection with a client in the sandbox. */
export interface TerminatedTls {
  readonly wire: Wire;
  /** The name that the client asked for; null when it asked for none. */
  readonly serverName: string | null;
}

/** HTTP/1.1 and nothing else, in the form of the TLS extension: each name behind its length. */
const alpn = Buffer.from('\x08http/1.1', 'latin1');
const handshakeTimeoutMs = 15_000;

/**
 * Speaks TLS on a raw socket of which nothing was read since the CONNECT. Null when no handshake came about; the
 * raw wire is closed then. `watch` is told of the new wire at once.
 */
export async function terminateTls(
  raw: Wire,
  socket: Bun.Socket<WireData>,
  leaf: Leaf,
  watch: (wire: Wire) => void,
): Promise<TerminatedTls | null> {
  const { promise: shaken, resolve } = Promise.withResolvers<boolean>();
  const timer = setTimeout(() => resolve(false), handshakeTimeoutMs);
  raw.mute();
  raw.onClose = () => resolve(false);
  const [, tlsSocket] = socket.upgradeTLS<WireData>({
    // Replaced below, before control returns to the event loop and a handler can run.
    data: undefined as unknown as WireData,
    tls: { cert: leaf.cert, key: leaf.key, ALPNProtocols: alpn },
    socket: { ...wireHandlers, open() {} },
  });
  const wire = new Wire(tlsSocket);
  tlsSocket.data = { wire, onHandshake: (ok) => resolve(ok) };
  wire.onClose = () => resolve(false);
  watch(wire);
  const ok = await shaken;
  clearTimeout(timer);
  // To terminate the raw socket has no effect any more once TLS has it: the connection ends with the TLS socket.
  raw.onClose = () => wire.destroy();
  wire.onClose = () => {};
  if (!ok || raw.closed) {
    raw.destroy();
    wire.destroy();
    return null;
  }
  const name: unknown = tlsSocket.getServername();
  return { wire, serverName: typeof name === 'string' && name !== '' ? name : null };
}

/**
 * As `terminateTls`, for a connection whose first bytes were looked at: they cannot be given back to Bun's socket,
 * so Node's TLS runs over the wire. Slower, and only used on ports that do not say what is spoken on them.
 */
export async function terminateTlsOver(
  raw: Wire,
  leaf: Leaf,
  watch: (wire: Wire) => void,
): Promise<TerminatedTls | null> {
  const { promise: shaken, resolve } = Promise.withResolvers<boolean>();
  const timer = setTimeout(() => resolve(false), handshakeTimeoutMs);
  const tlsSocket = new TLSSocket(duplexOf(raw), {
    isServer: true,
    secureContext: createSecureContext({ cert: leaf.cert, key: leaf.key }),
    ALPNProtocols: ['http/1.1'],
  });
  const wire = new Wire({
    // Node takes everything and buffers it, so what it has not sent yet counts as not taken.
    write(bytes) {
      if (tlsSocket.writableNeedDrain) return 0;
      tlsSocket.write(bytes);
      return bytes.length;
    },
    end: () => void tlsSocket.end(),
    terminate: () => void tlsSocket.destroy(),
    pause: () => void tlsSocket.pause(),
    resume: () => void tlsSocket.resume(),
  });
  tlsSocket.on('secure', () => resolve(true));
  tlsSocket.on('data', (bytes: Buffer) => wire.receive(bytes));
  tlsSocket.on('drain', () => wire.flush());
  tlsSocket.on('end', () => wire.finish());
  tlsSocket.on('error', () => wire.destroy());
  tlsSocket.on('close', () => wire.drop());
  wire.onClose = () => resolve(false);
  watch(wire);
  const ok = await shaken;
  clearTimeout(timer);
  wire.onClose = () => {};
  raw.onClose = () => wire.destroy();
  if (!ok || raw.gone) {
    raw.destroy();
    wire.destroy();
    return null;
  }
  const name = (tlsSocket as TLSSocket & { servername?: string | false }).servername;
  return { wire, serverName: typeof name === 'string' && name !== '' ? name : null };
}

/** The wire as a Node stream, for TLS of Node's over it. */
export function duplexOf(wire: Wire): Duplex {
  let reading = false;
  const duplex = new Duplex({
    read() {
      if (reading) return;
      reading = true;
      void (async () => {
        for (let wants = true; wants; ) {
          const piece = wire.take();
          if (piece !== undefined) wants = duplex.push(piece);
          else if (!(await wire.more())) wants = duplex.push(null);
        }
        reading = false;
      })();
    },
    write(bytes: Buffer, _encoding, done) {
      wire.write(bytes);
      if (wire.congested) void wire.drained().then(() => done());
      else done();
    },
    final(done) {
      wire.end();
      done();
    },
    destroy(error, done) {
      wire.destroy();
      done(error);
    },
  });
  return duplex;
}
