import { lookup } from 'node:dns/promises';
import { readFile } from 'node:fs/promises';
import { isIP } from 'node:net';
import { rootCertificates } from 'node:tls';
import { ConfigError } from '../config.ts';
import { plainAddress } from './addresses.ts';
import { Refusal } from './refusal.ts';
import type { Access, Authority } from './rules.ts';
import { Wire, type WireData, wireHandlers } from './wire.ts';

/** Every address of a name, as text. */
export type Resolve = (host: string) => Promise<readonly string[]>;

/** Where a connection to a vetted address is really made: the seam for tests that have no public addresses. */
export type Route = (address: string, port: number) => { readonly hostname: string; readonly port: number };

export interface Dialer {
  /**
   * Connects to a vetted address of the host; over TLS only after the certificate was verified against its name.
   * Throws `Refusal`: not resolved, private, unreachable, not trusted. `signal` gives up.
   */
  dial(authority: Authority, secure: boolean, signal: AbortSignal): Promise<Wire>;
}

const resolveTimeoutMs = 10_000;
const connectTimeoutMs = 10_000;
const maxAddressesTried = 4;

export const directRoute: Route = (hostname, port) => ({ hostname, port });

export const systemResolve: Resolve = async (host) =>
  (await lookup(host, { all: true, verbatim: true })).map(({ address }) => address);

/** The certificates of SLIPWAY_EGRESS_EXTRA_CA as PEM texts. Throws `ConfigError`. */
export async function readExtraCa(file: string | null): Promise<string[]> {
  if (file === null) return [];
  const text = await readFile(file, 'utf8').catch(() => '');
  const certificates = text.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g);
  if (certificates === null) {
    throw new ConfigError('SLIPWAY_EGRESS_EXTRA_CA must name a readable PEM file with at least one certificate.');
  }
  return certificates;
}

export function createDialer(options: {
  resolve: Resolve;
  access: Access;
  extraCa: readonly string[];
  route: Route;
}): Dialer {
  const trusted = options.extraCa.length === 0 ? undefined : [...rootCertificates, ...options.extraCa];

  /** The name is resolved once: what is vetted here is what is dialled. */
  async function vettedAddresses(authority: Authority, signal: AbortSignal): Promise<string[]> {
    const addresses =
      isIP(authority.host) === 0 ? await resolveInTime(options.resolve, authority.host, signal) : [authority.host];
    const open = addresses.map(plainAddress).filter((address) => options.access.addressOpen(authority, address));
    if (open.length > 0) return open.slice(0, maxAddressesTried);
    throw new Refusal(
      'private_address',
      `${authority.host} is at a private address. Name the host in SLIPWAY_EGRESS_ALLOW_PRIVATE to open it.`,
    );
  }

  return {
    async dial(authority, secure, signal) {
      let failure: unknown;
      for (const address of await vettedAddresses(authority, signal)) {
        try {
          return await connect(options.route(address, authority.port), authority, secure ? { trusted } : null, signal);
        } catch (error) {
          failure = error;
          if (signal.aborted || (error instanceof Refusal && error.code === 'upstream_untrusted')) break;
        }
      }
      throw failure;
    },
  };
}

async function resolveInTime(resolve: Resolve, host: string, signal: AbortSignal): Promise<readonly string[]> {
  const unresolved = new Refusal('upstream_unresolved', `The name ${host} could not be resolved.`);
  const { promise: givenUp, reject } = Promise.withResolvers<never>();
  const giveUp = () => reject(unresolved);
  const timer = setTimeout(giveUp, resolveTimeoutMs);
  signal.addEventListener('abort', giveUp, { once: true });
  try {
    const addresses = await Promise.race([resolve(host), givenUp]);
    if (addresses.length === 0) throw unresolved;
    return addresses;
  } catch {
    throw unresolved;
  } finally {
    clearTimeout(timer);
    signal.removeEventListener('abort', giveUp);
  }
}

function connect(
  endpoint: ReturnType<Route>,
  authority: Authority,
  tls: { trusted: string[] | undefined } | null,
  signal: AbortSignal,
): Promise<Wire> {
  const { promise, resolve, reject } = Promise.withResolvers<Wire>();
  let wire: Wire | null = null;
  const giveUp = () => {
    settle(() => reject(unreachable(authority)));
    wire?.destroy();
  };
  const timer = setTimeout(giveUp, connectTimeoutMs);
  signal.addEventListener('abort', giveUp, { once: true });
  let settled = false;
  function settle(outcome: () => void): void {
    settled = true;
    clearTimeout(timer);
    signal.removeEventListener('abort', giveUp);
    outcome();
  }
  function onOpen(socket: Bun.Socket<WireData>): void {
    if (settled) {
      socket.terminate();
      return;
    }
    socket.setNoDelay(true);
    const opened = new Wire(socket);
    wire = opened;
    opened.onClose = () => settle(() => reject(unreachable(authority)));
    socket.data = { wire: opened, onHandshake };
    if (tls === null) ready(opened);
  }
  function onHandshake(ok: boolean, error: Error | null): void {
    if (wire === null || settled) return;
    if (ok && error === null) {
      ready(wire);
      return;
    }
    settle(() => reject(untrusted(authority, error)));
    wire.destroy();
  }
  function ready(opened: Wire): void {
    opened.onClose = () => {};
    settle(() => resolve(opened));
  }
  Bun.connect<WireData>({
    hostname: endpoint.hostname,
    port: endpoint.port,
    // Replaced in `open`, before any other handler can run.
    data: undefined as unknown as WireData,
    ...(tls === null ? {} : { tls: tlsOptions(authority.host, tls.trusted) }),
    socket: { ...wireHandlers, open: onOpen, connectError: giveUp },
  }).catch(giveUp);
  return promise;
}

const tlsOptions = (host: string, trusted: string[] | undefined): Bun.TLSOptions => ({
  rejectUnauthorized: true,
  ...(isIP(host) === 0 ? { serverName: host } : {}),
  ...(trusted === undefined ? {} : { ca: trusted }),
});

const unreachable = ({ host, port }: Authority) =>
  new Refusal('upstream_unreachable', `No connection to ${host} on port ${port} could be made.`);

function untrusted({ host }: Authority, error: Error | null): Refusal {
  const code = error !== null && 'code' in error && typeof error.code === 'string' ? ` (${error.code})` : '';
  return new Refusal('upstream_untrusted', `The TLS certificate of ${host} could not be verified${code}.`);
}
