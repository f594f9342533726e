import { isIP } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { beginTls, type Connection, type DialFault, type TlsPeer, trustFault } from './dial-connect.ts';
import { BadMessage, readHead } from './http1.ts';
import { Refusal } from './refusal.ts';
import { type Authority, authorityText } from './rules.ts';
import { duplexOf } from './terminate.ts';
import type { UpstreamProxy } from './upstream-proxy.ts';
import { Wire } from './wire.ts';

const answerTimeoutMs = 15_000;

/** What goes wrong between here and the proxy is told without its address: the agent has no business with it. */
export const proxyFault = ({ kind, why }: DialFault) =>
  new Refusal(
    'upstream_unreachable',
    kind === 'trust'
      ? `The TLS certificate of the server's own proxy could not be verified: ${why}.`
      : `The server's own proxy ${why}.`,
  );

/**
 * Asks the proxy for a tunnel to `target`, which may be an address in place of the authority's name, and speaks TLS
 * inside where `tls` is given. The connection is closed when it throws `Refusal`, or when the signal says so.
 */
export async function tunnelThrough(
  connection: Connection,
  proxy: UpstreamProxy,
  target: Authority,
  tls: TlsPeer | null,
  fault: (fault: DialFault) => Refusal,
  signal: AbortSignal,
): Promise<Wire> {
  const { wire } = connection;
  const giveUp = () => wire.destroy();
  const timer = setTimeout(giveUp, answerTimeoutMs);
  signal.addEventListener('abort', giveUp, { once: true });
  if (signal.aborted) giveUp();
  try {
    await openTunnel(wire, proxy, target);
    if (tls === null) return wire;
    return proxy.isSecure ? await tlsOver(wire, tls, fault) : (await beginTls(connection, tls, fault)).wire;
  } catch (error) {
    wire.destroy();
    throw error;
  } finally {
    clearTimeout(timer);
    signal.removeEventListener('abort', giveUp);
  }
}

async function openTunnel(wire: Wire, proxy: UpstreamProxy, target: Authority): Promise<void> {
  const name = isIP(target.host) === 6 ? `[${target.host}]:${target.port}` : `${target.host}:${target.port}`;
  const authorization = proxy.authorization === null ? '' : `Proxy-Authorization: ${proxy.authorization}\r\n`;
  wire.write(Buffer.from(`CONNECT ${name} HTTP/1.1\r\nHost: ${name}\r\n${authorization}\r\n`, 'latin1'));
  const text = await readHead(wire).catch((error: unknown) => {
    if (error instanceof Refusal || error instanceof BadMessage) return '';
    throw error;
  });
  const status = /^HTTP\/1\.[01] (\d{3})(?: |\r|$)/.exec(text ?? '')?.[1];
  if (status === undefined) throw proxyFault({ kind: 'unreachable', why: 'gave no answer to CONNECT' });
  if (status === '407') throw proxyFault({ kind: 'unreachable', why: 'does not accept the credentials (407)' });
  if (!status.startsWith('2')) {
    throw proxyFault({
      kind: 'unreachable',
      why:
        isIP(target.host) === 0
          ? `refuses a tunnel to this host on port ${target.port} (${status})`
          : `refuses a tunnel to the host's address on port ${target.port} (${status}); with SLIPWAY_EGRESS_TRUST_PROXY_DNS=true it is given the name`,
    });
  }
  // Nobody but the origin may speak inside the tunnel, and it speaks only when it was asked.
  if (wire.hasUnread) throw proxyFault({ kind: 'unreachable', why: 'sent more than its answer to CONNECT' });
}

/** TLS inside TLS, which Bun's own sockets do not offer: Node's over the wire, a little slower. */
function tlsOver(raw: Wire, { host, trusted }: TlsPeer, fault: (fault: DialFault) => Refusal): Promise<Wire> {
  const { promise, resolve, reject } = Promise.withResolvers<Wire>();
  const socket = connectTls({
    socket: duplexOf(raw),
    host,
    ...(isIP(host) === 0 ? { servername: host } : {}),
    rejectUnauthorized: true,
    ...(trusted === undefined ? {} : { ca: [...trusted] }),
  });
  const wire = new Wire({
    // Node takes everything and buffers it, so what it has not sent yet counts as not taken.
    write(bytes) {
      if (socket.writableNeedDrain) return 0;
      socket.write(bytes);
      return bytes.length;
    },
    end: () => void socket.end(),
    terminate: () => void socket.destroy(),
    pause: () => void socket.pause(),
    resume: () => void socket.resume(),
  });
  let failure: DialFault = { kind: 'unreachable', why: 'broke off the TLS handshake' };
  const fail = () => reject(fault(failure));
  wire.onClose = fail;
  // Not the wire: it would be closed before the error that explains its end is told.
  raw.onClose = () => void socket.destroy();
  socket.on('secureConnect', () => {
    wire.onClose = () => {};
    resolve(wire);
  });
  socket.on('data', (bytes: Buffer) => wire.receive(bytes));
  socket.on('drain', () => wire.flush());
  socket.on('end', () => wire.finish());
  socket.on('error', (error) => {
    failure = trustFault(error);
    wire.destroy();
  });
  socket.on('close', () => wire.drop());
  return promise;
}

/**
 * Makes a connection to a proxy fit for plain requests: the target of each becomes a whole address. `head` begins with
 * `METHOD /path HTTP/1.1`.
 */
export function forwardThrough(wire: Wire, proxy: UpstreamProxy, authority: Authority): Wire {
  const origin = `http://${authorityText(authority, 80)}`;
  const authorization = proxy.authorization === null ? '' : `Proxy-Authorization: ${proxy.authorization}\r\n`;
  wire.rewriteHead = (head) => {
    const text = head.toString('latin1');
    const target = text.indexOf(' ') + 1;
    const headers = text.indexOf('\r\n') + 2;
    // OPTIONS for the server as a whole has no path in this form (RFC 9112, section 3.2.4).
    const start = text[target] === '*' ? target + 1 : target;
    return Buffer.from(
      `${text.slice(0, target)}${origin}${text.slice(start, headers)}${authorization}${text.slice(headers)}`,
      'latin1',
    );
  };
  return wire;
}
