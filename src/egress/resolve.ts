import { lookup, Resolver } from 'node:dns/promises';
import { readFile } from 'node:fs/promises';
import { isIP } from 'node:net';
import { type Clock, systemClock } from '../kernel/clock.ts';

/** Every address of a name, as text; none when there is no such name. Rejects when nobody could be asked in time. */
export type Resolve = (host: string) => Promise<readonly string[]>;

/** An address and how long it may be believed, as its record says. */
export interface AddressRecord {
  readonly address: string;
  readonly ttlMs: number;
}

/** Whom a name is asked of, in this order, until one knows it. An answer without records is "no such name". */
export interface NameSources {
  /** The file that a machine's administrator writes names into. */
  hosts(host: string): Promise<readonly AddressRecord[]>;
  /** The system's name servers. */
  servers(host: string): Promise<readonly AddressRecord[]>;
  /** Whatever else the system asks, such as search domains and names of the local network. */
  system(host: string): Promise<readonly AddressRecord[]>;
}

export interface ResolverOptions {
  readonly sources?: Partial<NameSources>;
  readonly clock?: Clock;
  /** Names that are remembered; 1,000 unless given. */
  readonly mostNames?: number;
  /** How long one source may take; 5 s unless given. */
  readonly sourceMs?: number;
}

/** Neither the hosts file nor the system's own lookup says how long an answer holds. */
const hostsTtlMs = 5_000;
const systemTtlMs = 30_000;
/** How long "no such name" is believed: one that has just been made should soon be found. */
const negativeTtlMs = 5_000;
/** A record that claims to hold longer is asked for again all the same. */
const longestTtlMs = 3_600_000;

const systemSources: NameSources = {
  hosts: async (host) => fromHosts(await readFile('/etc/hosts', 'utf8').catch(() => ''), host),
  servers: fromServers,
  system: async (host) =>
    (await lookup(host, { all: true, verbatim: true })).map(({ address }) => ({ address, ttlMs: systemTtlMs })),
};

/**
 * A resolver that remembers answers as long as their records say, asks for one name once at a time, and forgets the
 * names that were used longest ago first.
 */
export function createResolver(options: ResolverOptions = {}): Resolve {
  const { clock = systemClock, mostNames = 1_000, sourceMs = 5_000 } = options;
  const sources = { ...systemSources, ...options.sources };
  const known = new Map<string, { readonly addresses: readonly string[]; readonly until: number }>();
  const underWay = new Map<string, Promise<readonly string[]>>();

  async function ask(host: string): Promise<readonly string[]> {
    const records = await firstAnswer(host, sources, sourceMs);
    const ttlMs = records.length === 0 ? negativeTtlMs : Math.min(longestTtlMs, ...records.map(({ ttlMs }) => ttlMs));
    const addresses = [...new Set(records.map(({ address }) => address))];
    remember(host, addresses, clock() + ttlMs);
    return addresses;
  }

  function remember(host: string, addresses: readonly string[], until: number): void {
    known.delete(host);
    known.set(host, { addresses, until });
    for (const oldest of known.keys()) {
      if (known.size <= mostNames) break;
      known.delete(oldest);
    }
  }

  return (host) => {
    const found = known.get(host);
    if (found !== undefined && found.until > clock()) {
      remember(host, found.addresses, found.until);
      return Promise.resolve(found.addresses);
    }
    const pending = underWay.get(host);
    if (pending !== undefined) return pending;
    const asked = ask(host).finally(() => underWay.delete(host));
    underWay.set(host, asked);
    return asked;
  };
}

/** The resolver of this machine, with a memory of its own. */
export const systemResolve: Resolve = createResolver();

/** Rejects when a source did not answer in time and none after it knew the name: then nobody knows that it is not. */
async function firstAnswer(host: string, sources: NameSources, sourceMs: number): Promise<readonly AddressRecord[]> {
  const ask = (source: (host: string) => Promise<readonly AddressRecord[]>) => inTime(source(host), sourceMs);
  const written = await ask(sources.hosts);
  if (written.length > 0) return written;
  // A name without a dot is never one of the public internet, and name servers are not asked for it as it stands.
  const served = host.includes('.') ? await ask(sources.servers).catch(asFailure) : [];
  if (!(served instanceof Error) && served.length > 0) return served;
  const other = await ask(sources.system).catch(asFailure);
  if (!(other instanceof Error)) return other;
  if (served instanceof Error) throw served;
  if (other instanceof TimedOut) throw other;
  return [];
}

class TimedOut extends Error {
  override readonly name = 'TimedOut';
}

const asFailure = (error: unknown) => (error instanceof Error ? error : new Error(String(error)));

async function inTime<T>(work: Promise<T>, ms: number): Promise<T> {
  const { promise: late, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => reject(new TimedOut('No name server answered in time.')), ms);
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** The addresses that a hosts file gives a name: `address name alias …`, `#` before a comment. */
export function fromHosts(text: string, host: string): AddressRecord[] {
  const records: AddressRecord[] = [];
  for (const line of text.split('\n')) {
    const [address = '', ...names] = line.replace(/#.*$/, '').trim().split(/\s+/);
    const isNamed = names.some((name) => name.toLowerCase().replace(/\.$/, '') === host);
    if (isNamed && isIP(address) !== 0) records.push({ address, ttlMs: hostsTtlMs });
  }
  return records;
}

/** What c-ares calls an answer that there is no such name, or none with an address of this family. */
const noSuchName = new Set(['ENOTFOUND', 'ENODATA']);

/** A resolver of its own for every name: it reads which servers there are anew, and they may have changed. */
async function fromServers(host: string): Promise<readonly AddressRecord[]> {
  const resolver = new Resolver({ timeout: 2_000, tries: 2 });
  const families = await Promise.allSettled([
    resolver.resolve6(host, { ttl: true }),
    resolver.resolve4(host, { ttl: true }),
  ]);
  const records = families.flatMap((family) => (family.status === 'fulfilled' ? family.value : []));
  const failed = families.find(
    (family) => family.status === 'rejected' && !noSuchName.has((family.reason as { code?: string }).code ?? ''),
  );
  if (records.length === 0 && failed?.status === 'rejected') throw failed.reason;
  return records.map(({ address, ttl }) => ({ address, ttlMs: ttl * 1000 }));
}
