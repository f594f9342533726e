import { X509Certificate } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { isIP } from 'node:net';
import { rootCertificates } from 'node:tls';
import { ConfigError } from '../config.ts';
import { isOddAddress, plainAddress } from './addresses.ts';
import { beginConnect, type Connection, type DialFault, type TlsPeer } from './dial-connect.ts';
import { interleaved, race, type Schedule, timerSchedule } from './dial-race.ts';
import { Refusal } from './refusal.ts';
import type { Resolve } from './resolve.ts';
import type { Access, Authority } from './rules.ts';
import { type ProxyUrlFor, parseProxy, type UpstreamProxy } from './upstream-proxy.ts';
import { forwardThrough, proxyFault, tunnelThrough } from './upstream-proxy-dial.ts';
import type { Wire } from './wire.ts';

/** Where a connection to a vetted address is really made: the seam for tests that have no public addresses. */
export type Route = (address: string, port: number) => { readonly hostname: string; readonly port: number };

export interface Dialer {
  /**
   * Connects to a vetted address of the host; over TLS only after the certificate was verified against its name.
   * Throws `Refusal`: not resolved, private, unreachable, not trusted. `signal` gives up.
   */
  dial(authority: Authority, secure: boolean, signal: AbortSignal): Promise<Wire>;
}

export interface DialerOptions {
  readonly resolve: Resolve;
  readonly access: Access;
  /** PEM texts trusted beside the usual roots. */
  readonly extraCa: readonly string[];
  readonly route: Route;
  /** The proxy of the server's own network, if there is one on the way to a host. */
  readonly proxyUrlFor?: ProxyUrlFor;
  /**
   * The proxy is given names and may know ones that we cannot resolve: which address a name has is its decision then.
   * Otherwise it is given vetted addresses alone, and names that we cannot resolve are refused.
   */
  readonly trustProxyDns?: boolean;
  readonly schedule?: Schedule;
}

const resolveTimeoutMs = 10_000;
/** How long a name may take here when the proxy's answer is what counts. */
const resolveBesideProxyMs = 1_000;
const maxAddressesTried = 4;

export const directRoute: Route = (hostname, port) => ({ hostname, port });

/** The certificates of SLIPWAY_EGRESS_EXTRA_CA as PEM texts, one or several in the file. Throws `ConfigError`. */
export async function readExtraCa(file: string | null): Promise<string[]> {
  if (file === null) return [];
  const text = await readFile(file, 'utf8').catch(() => '');
  const certificates = text.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g);
  if (certificates === null) {
    throw new ConfigError('SLIPWAY_EGRESS_EXTRA_CA must name a readable PEM file with at least one certificate.');
  }
  const broken = certificates.findIndex((certificate) => !isCertificate(certificate));
  if (broken >= 0) {
    throw new ConfigError(
      `SLIPWAY_EGRESS_EXTRA_CA: certificate ${broken + 1} of ${certificates.length} in the file cannot be read.`,
    );
  }
  return certificates;
}

function isCertificate(text: string): boolean {
  try {
    return new X509Certificate(text).subject !== undefined;
  } catch {
    return false;
  }
}

export function createDialer(options: DialerOptions): Dialer {
  const { resolve, access, route, trustProxyDns = false, schedule = timerSchedule } = options;
  const trusted = options.extraCa.length === 0 ? undefined : [...rootCertificates, ...options.extraCa];
  const proxies = new Map<string, UpstreamProxy>();

  function proxyFor(authority: Authority, secure: boolean): UpstreamProxy | null {
    const url = options.proxyUrlFor?.({ ...authority, secure }) ?? null;
    if (url === null) return null;
    const known = proxies.get(url) ?? parseProxy(url);
    proxies.set(url, known);
    return known;
  }

  /** The name is resolved once: what is vetted here is what is dialled. */
  async function vettedAddresses(authority: Authority, signal: AbortSignal, timeoutMs: number): Promise<string[]> {
    const { host } = authority;
    if (isOddAddress(host))
      throw new Refusal('bad_request', `${host} is neither a name nor an address as it is written.`);
    const addresses = isIP(host) === 0 ? await resolveInTime(resolve, host, signal, timeoutMs) : [host];
    const open = addresses.map(plainAddress).filter((address) => access.addressOpen(authority, address));
    if (open.length > 0) return interleaved(open).slice(0, maxAddressesTried);
    throw new Refusal(
      'private_address',
      `${host} is at a private address. Name the host in SLIPWAY_EGRESS_ALLOW_PRIVATE to open it.`,
    );
  }

  /** Vets what can be known of a host of which the proxy decides; the name itself is what it is given. */
  async function vettedName(authority: Authority, signal: AbortSignal): Promise<void> {
    await vettedAddresses(authority, signal, resolveBesideProxyMs).catch((error: unknown) => {
      if (!(error instanceof Refusal && error.code === 'upstream_unresolved')) throw error;
    });
  }

  async function connectRaced(
    addresses: readonly string[],
    port: number,
    tls: TlsPeer | null,
    fault: (fault: DialFault) => Refusal,
    signal: AbortSignal,
    way: Route,
  ): Promise<Connection> {
    const givenUp = fault({ kind: 'unreachable', why: 'was given up, for the connection has ended' });
    if (signal.aborted) throw givenUp;
    const abandons: (() => void)[] = [];
    const { promise: ended, reject } = Promise.withResolvers<never>();
    const onAbort = () => {
      reject(givenUp);
      for (const abandon of abandons) abandon();
    };
    signal.addEventListener('abort', onAbort, { once: true });
    const begin = (address: string, onConnected: () => void) => {
      const attempt = beginConnect(way(address, port), tls, onConnected, fault);
      abandons.push(attempt.abandon);
      if (signal.aborted) attempt.abandon();
      return attempt;
    };
    const isFinal = (error: unknown) =>
      signal.aborted || (error instanceof Refusal && error.code === 'upstream_untrusted');
    try {
      return await Promise.race([race(addresses, begin, isFinal, schedule), ended]);
    } finally {
      signal.removeEventListener('abort', onAbort);
    }
  }

  async function dialProxy(proxy: UpstreamProxy, signal: AbortSignal): Promise<Connection> {
    // The proxy is the administrator's choice and may well be at a private address, so nothing is vetted.
    const addresses = isIP(proxy.host) === 0 ? await resolve(proxy.host).catch(() => []) : [proxy.host];
    if (addresses.length === 0) throw proxyFault({ kind: 'unreachable', why: 'has a name that could not be resolved' });
    const tls = proxy.isSecure ? { host: proxy.host, trusted } : null;
    const order = interleaved(addresses).slice(0, maxAddressesTried);
    return connectRaced(order, proxy.port, tls, proxyFault, signal, directRoute);
  }

  async function dialThrough(proxy: UpstreamProxy, authority: Authority, secure: boolean, signal: AbortSignal) {
    const fault = faultOf(authority);
    if (trustProxyDns) {
      await vettedName(authority, signal);
      const connection = await dialProxy(proxy, signal);
      if (!secure) return forwardThrough(connection.wire, proxy, authority);
      return tunnelThrough(connection, proxy, authority, { host: authority.host, trusted }, fault, signal);
    }
    const [address = ''] = await vettedAddresses(authority, signal, resolveTimeoutMs);
    // A plain request goes through a tunnel too: its target could only be the name, which the proxy would resolve anew.
    const tls = secure ? { host: authority.host, trusted } : null;
    const target = { host: address, port: authority.port };
    return tunnelThrough(await dialProxy(proxy, signal), proxy, target, tls, fault, signal);
  }

  return {
    async dial(authority, secure, signal) {
      const proxy = proxyFor(authority, secure);
      if (proxy !== null) return dialThrough(proxy, authority, secure, signal);
      const addresses = await vettedAddresses(authority, signal, resolveTimeoutMs);
      const tls = secure ? { host: authority.host, trusted } : null;
      return (await connectRaced(addresses, authority.port, tls, faultOf(authority), signal, route)).wire;
    },
  };
}

async function resolveInTime(
  resolve: Resolve,
  host: string,
  signal: AbortSignal,
  timeoutMs: number,
): Promise<readonly string[]> {
  const { promise: givenUp, reject } = Promise.withResolvers<never>();
  const giveUp = () => reject(unresolved(host, 'could not be resolved'));
  const timer = setTimeout(giveUp, timeoutMs);
  signal.addEventListener('abort', giveUp, { once: true });
  if (signal.aborted) giveUp();
  try {
    const addresses = await Promise.race([resolve(host).catch(() => null), givenUp]);
    if (addresses === null) throw unresolved(host, 'could not be resolved: no name server gave an answer');
    if (addresses.length === 0) throw unresolved(host, 'could not be resolved: there is no such name');
    return addresses;
  } finally {
    clearTimeout(timer);
    signal.removeEventListener('abort', giveUp);
  }
}

const unresolved = (host: string, why: string) => new Refusal('upstream_unresolved', `The name ${host} ${why}.`);

const faultOf =
  ({ host, port }: Authority) =>
  ({ kind, why }: DialFault): Refusal =>
    kind === 'trust'
      ? new Refusal('upstream_untrusted', `The TLS certificate of ${host} could not be verified: ${why}.`)
      : new Refusal('upstream_unreachable', `No connection to ${host} on port ${port} could be made: it ${why}.`);
