import { asRefusal, malformed, mayHaveBody, refuse, type Surroundings } from './answer.ts';
import type { Leaf } from './authority.ts';
import type { RequestHead } from './http1.ts';
import { closedPort, type Tunnel } from './plan.ts';
import type { Refusal } from './refusal.ts';
import { type Authority, normalHost, parseAuthority } from './rules.ts';
import { type TerminatedTls, terminateTls, terminateTlsOver } from './terminate.ts';
import type { Wire, WireData } from './wire.ts';

const established = Buffer.from('HTTP/1.1 200 Connection established\r\n\r\n');
const tlsHandshakeByte = 0x16;

/** A CONNECT that was answered with 200. */
export interface Accepted {
  readonly authority: Authority;
  readonly leaf: Leaf;
}

/** Where a CONNECT leads, and the certificate for TLS there; null when it was refused. */
export async function acceptConnect(client: Wire, head: RequestHead, shared: Surroundings): Promise<Accepted | null> {
  const authority = parseAuthority(head.target, null);
  let refusal = refusalOfConnect(head, authority, shared);
  if (authority !== undefined && refusal === null) {
    // Made before the answer: TLS must be ready when the client's first byte comes.
    const leaf = await shared.certificates.leafFor(authority.host);
    if (!client.hasUnread) {
      // From here on a change of the policies ends the connection.
      shared.carried.toward(client, authority.host);
      client.write(established);
      await client.drained();
      return { authority, leaf };
    }
    // Bytes read before TLS begins could not be handed to it, and no client has a reason to send any.
    refusal = malformed('data follows CONNECT before its answer');
  }
  const entry = { host: authority?.host ?? '', port: authority?.port ?? 0, method: 'CONNECT', path: null };
  await refuse(client, refusal ?? malformed('the target of CONNECT is not host:port'), entry, shared, true);
  return null;
}

function refusalOfConnect(head: RequestHead, authority: Authority | undefined, shared: Surroundings): Refusal | null {
  if (authority === undefined) return malformed('the target of CONNECT is not host:port');
  if (!shared.access.portOpen(authority.host, authority.port)) return closedPort(authority);
  if (mayHaveBody(head)) return malformed('CONNECT has a body');
  try {
    shared.refuseDenied(authority.host);
    return null;
  } catch (error) {
    return asRefusal(error);
  }
}

/**
 * Enters what is inside a CONNECT: TLS on 443, and elsewhere what the client's first byte says. Null when no
 * connection came about; it is recorded then.
 */
export async function enterTunnel(
  raw: Wire,
  socket: Bun.Socket<WireData>,
  { authority, leaf }: Accepted,
  shared: Surroundings,
): Promise<{ wire: Wire; tunnel: Tunnel } | null> {
  const peeks = authority.port !== 443;
  if (peeks) {
    raw.deadlineAt = shared.clock() + shared.headTimeoutMs;
    if (!(await beginsWithTls(raw))) return { wire: raw, tunnel: { authority, secure: false } };
    raw.deadlineAt = null;
  }
  const tls = peeks
    ? await terminateTlsOver(raw, leaf, shared.watch)
    : await terminateTls(raw, socket, leaf, shared.watch);
  const trouble = raw.endedFor?.message ?? tlsTrouble(tls, authority);
  if (tls !== null && trouble === null) {
    shared.carried.toward(tls.wire, authority.host);
    return { wire: tls.wire, tunnel: { authority, secure: true } };
  }
  tls?.wire.destroy();
  raw.destroy();
  await shared.report({
    ...authority,
    at: shared.clock(),
    method: null,
    path: null,
    status: null,
    bytesUp: 0,
    bytesDown: 0,
    durationMs: 0,
    secrets: [],
    decision: tls === null && raw.endedFor === null ? 'allowed' : 'denied',
    reason: trouble,
  });
  return null;
}

function tlsTrouble(tls: TerminatedTls | null, authority: Authority): string | null {
  if (tls === null) return 'The client broke off the TLS handshake: it may not trust the authority of the sandbox.';
  if (tls.serverName === null || normalHost(tls.serverName) === authority.host) return null;
  return `The TLS handshake names another host than the tunnel to ${authority.host}.`;
}

async function beginsWithTls(wire: Wire): Promise<boolean> {
  if (!(await wire.more())) return false;
  const piece = wire.take();
  if (piece === undefined) return false;
  wire.unread(piece);
  return piece[0] === tlsHandshakeByte;
}
