import { isIP } from 'node:net';
import type { Attempt } from './dial-race.ts';
import type { Refusal } from './refusal.ts';
import { Wire, type WireData, wireHandlers } from './wire.ts';

/** What to verify a peer's certificate against. */
export interface TlsPeer {
  readonly host: string;
  /** PEM texts to trust; undefined for the usual roots. */
  readonly trusted: readonly string[] | undefined;
}

/** A connection, and the socket for whoever speaks TLS over it later. */
export interface Connection {
  readonly wire: Wire;
  readonly socket: Bun.Socket<WireData>;
}

/** Why no connection came about, in words that fit behind the peer's name; `trust` is for a certificate. */
export interface DialFault {
  readonly kind: 'unreachable' | 'trust';
  readonly why: string;
}

const connectTimeoutMs = 10_000;

/**
 * Connects to an address, over TLS only once the certificate is verified. `onConnected` is called before the
 * handshake. `fault` makes the error with which it fails.
 */
export function beginConnect(
  endpoint: { readonly hostname: string; readonly port: number },
  tls: TlsPeer | null,
  onConnected: () => void,
  fault: (fault: DialFault) => Refusal,
): Attempt<Connection> {
  const { promise: ready, resolve, reject } = Promise.withResolvers<Connection>();
  let wire: Wire | null = null;
  let isSettled = false;
  const timer = setTimeout(
    () => fail({ kind: 'unreachable', why: `did not answer within ${connectTimeoutMs / 1000} s` }),
    connectTimeoutMs,
  );
  function settle(outcome: () => void): void {
    if (isSettled) return;
    isSettled = true;
    clearTimeout(timer);
    outcome();
  }
  function fail(reason: DialFault): void {
    settle(() => reject(fault(reason)));
    wire?.destroy();
  }
  function onOpen(socket: Bun.Socket<WireData>): void {
    const opened = new Wire(socket);
    socket.data = { wire: opened };
    if (isSettled) {
      opened.destroy();
      return;
    }
    socket.setNoDelay(true);
    wire = opened;
    opened.onClose = () => fail({ kind: 'unreachable', why: 'broke off the TLS handshake' });
    socket.data = {
      wire: opened,
      onHandshake(ok, error) {
        if (isSettled) return;
        if (ok && error === null) finish(socket, opened);
        else fail(trustFault(error));
      },
    };
    onConnected();
    if (tls === null) finish(socket, opened);
  }
  function finish(socket: Bun.Socket<WireData>, opened: Wire): void {
    opened.onClose = () => {};
    settle(() => resolve({ wire: opened, socket }));
  }
  const onConnectError = (error: unknown) => fail({ kind: 'unreachable', why: reasonOf(error) });
  Bun.connect<WireData>({
    ...endpoint,
    // Replaced in `open`, before any other handler can run.
    data: undefined as unknown as WireData,
    ...(tls === null ? {} : { tls: tlsOptions(tls) }),
    socket: { ...wireHandlers, open: onOpen, connectError: (_, error) => onConnectError(error) },
  }).catch(onConnectError);
  return { ready, abandon: () => fail({ kind: 'unreachable', why: 'was given up' }) };
}

/** Speaks TLS as a client over a plain connection of which everything that arrived was read. */
export function beginTls(
  { wire: raw, socket }: Connection,
  tls: TlsPeer,
  fault: (fault: DialFault) => Refusal,
): Promise<Connection> {
  const { promise, resolve, reject } = Promise.withResolvers<Connection>();
  raw.mute();
  const [, tlsSocket] = socket.upgradeTLS<WireData>({
    // Replaced below, before control returns to the event loop and a handler can run.
    data: undefined as unknown as WireData,
    tls: tlsOptions(tls),
    socket: { ...wireHandlers, open() {} },
  });
  const wire = new Wire(tlsSocket);
  const fail = (reason: DialFault) => {
    clearTimeout(timer);
    reject(fault(reason));
    wire.destroy();
    raw.destroy();
  };
  const late: DialFault = { kind: 'unreachable', why: `did not answer within ${connectTimeoutMs / 1000} s` };
  const timer = setTimeout(() => fail(late), connectTimeoutMs);
  wire.onClose = () => fail({ kind: 'unreachable', why: 'broke off the TLS handshake' });
  raw.onClose = () => wire.destroy();
  tlsSocket.data = {
    wire,
    onHandshake(ok, error) {
      if (!ok || error !== null) {
        fail(trustFault(error));
        return;
      }
      clearTimeout(timer);
      wire.onClose = () => {};
      resolve({ wire, socket: tlsSocket });
    },
  };
  return promise;
}

const tlsOptions = ({ host, trusted }: TlsPeer): Bun.TLSOptions => ({
  rejectUnauthorized: true,
  ...(isIP(host) === 0 ? { serverName: host } : {}),
  ...(trusted === undefined ? {} : { ca: [...trusted] }),
});

const reasons: Record<string, string> = {
  ECONNREFUSED: 'refused the connection, or no way leads there',
  ECONNRESET: 'broke the connection off',
  EHOSTUNREACH: 'cannot be reached: no way leads there',
  ENETUNREACH: 'cannot be reached: no way leads there',
  ETIMEDOUT: 'did not answer in time',
};

const codeOf = (error: unknown) =>
  error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : '';

const reasonOf = (error: unknown) => reasons[codeOf(error)] ?? 'cannot be reached';

const otherName = 'it is for another name';
const unknownAuthority = 'its authority is not trusted here; SLIPWAY_EGRESS_EXTRA_CA of the server adds authorities';
const certificateReasons: Record<string, string> = {
  CERT_HAS_EXPIRED: 'it has expired',
  CERT_NOT_YET_VALID: 'it is not valid yet',
  CERT_REVOKED: 'it was revoked',
  ERR_TLS_CERT_ALTNAME_INVALID: otherName,
  HOSTNAME_MISMATCH: otherName,
  DEPTH_ZERO_SELF_SIGNED_CERT: unknownAuthority,
  SELF_SIGNED_CERT_IN_CHAIN: unknownAuthority,
  UNABLE_TO_GET_ISSUER_CERT: unknownAuthority,
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: unknownAuthority,
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: unknownAuthority,
};

/** What a failed handshake says: about the peer's certificate, unless it never came to one. */
export function trustFault(error: unknown): DialFault {
  const code = codeOf(error);
  const why = certificateReasons[code];
  if (why !== undefined) return { kind: 'trust', why: `${why} (${code})` };
  if (/^$|^ECONN|^EPIPE|^EPROTO|^ERR_SSL/.test(code))
    return { kind: 'unreachable', why: 'broke off the TLS handshake' };
  return { kind: 'trust', why: `it cannot be used (${code})` };
}
