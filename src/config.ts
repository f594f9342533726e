import { homedir } from 'node:os';
import path from 'node:path';
import { type ModelProvider, modelProviders } from './gateway/gateway.ts';

/** Everything that the server's surroundings decide, read once. The only reader of `process.env`. */
export interface Config {
  readonly dataDir: string;
  readonly listen: { readonly host: string; readonly port: number };
  /** Origin under which people and agents reach the server, without a trailing slash; null to derive it from `listen`. */
  readonly publicUrl: string | null;
  /** The master key's text where it is given, or the file that holds it. */
  readonly masterKey: { readonly text: string } | { readonly file: string; readonly create: boolean };
  /** What DOCKER_HOST says; null for the engine's usual socket. */
  readonly dockerHost: string | null;
  readonly maxConcurrentRuns: number;
  /** Hosts or CIDRs that may resolve to private addresses. */
  readonly egressAllowPrivate: readonly string[];
  /** PEM file whose certificates are trusted upstream beside the usual ones. */
  readonly egressExtraCa: string | null;
  readonly egressLimits: EgressSettings;
  /** The proxy of the server's own network, through which everything leaves that is not excepted. */
  readonly upstreamProxy: UpstreamProxies;
  /** That proxy is given names and decides which addresses they have; otherwise it is given vetted addresses alone. */
  readonly egressTrustProxyDns: boolean;
  readonly sandboxImage: string | null;
  /** The volume that a server in a container shares with the doors of its sandboxes, and where it is mounted. */
  readonly doorVolume: { readonly name: string; readonly path: string } | null;
  /** Where fetched packages are kept between builds of the sandbox image; it may be removed at any time. */
  readonly cacheDir: string;
  /** Mirror of Debian's packages for a sandbox image that is made of them; null for Debian's own. */
  readonly debianMirror: string | null;
  readonly sandboxLimits: { readonly memoryBytes: number; readonly cpus: number; readonly processes: number };
  /** The deployment's own model keys ("included usage"). */
  readonly modelKeys: Readonly<Partial<Record<ModelProvider, string>>>;
  /** Where each provider's API is, as its own SDK takes it; without a trailing slash. */
  readonly modelBaseUrls: Readonly<Record<ModelProvider, string>>;
}

/** What one run may use of its way out. */
export interface EgressSettings {
  /** SLIPWAY_EGRESS_MAX_CONNECTIONS: at the same time; 512. */
  readonly connections: number;
  /** SLIPWAY_EGRESS_HEADER_BYTES: the largest head of a request; 65,536. */
  readonly headBytes: number;
  /** SLIPWAY_EGRESS_HEADER_SECONDS: until a head is whole, idle time between two requests included; 120. */
  readonly headTimeoutMs: number;
  /** SLIPWAY_EGRESS_IDLE_SECONDS: an exchange or a WebSocket without a byte either way; 900, and 0 for no limit. */
  readonly idleMs: number;
  /** SLIPWAY_EGRESS_MAX_BYTES_UP and SLIPWAY_EGRESS_MAX_BYTES_DOWN: of the whole run; 0, the default, for no limit. */
  readonly maxBytesUp: number;
  readonly maxBytesDown: number;
}

/** HTTPS_PROXY, HTTP_PROXY and NO_PROXY, or the same in lower case, which wins. URLs may hold credentials. */
export interface UpstreamProxies {
  /** For TLS, and for plain requests respectively; null for the direct way. */
  readonly https: string | null;
  readonly http: string | null;
  readonly noProxy: readonly string[];
}

export interface Flags {
  readonly dataDir?: string | undefined;
  readonly listen?: string | undefined;
  readonly publicUrl?: string | undefined;
}

/** A setting has a value that cannot be used. `message` names the setting and the mend, never the value of a key. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError';
}

const usualBaseUrls: Record<ModelProvider, string> = {
  openai: 'https://api.openai.com/v1',
  anthropic: 'https://api.anthropic.com',
  google: 'https://generativelanguage.googleapis.com/v1beta',
  xai: 'https://api.x.ai/v1',
  mistral: 'https://api.mistral.ai/v1',
  deepseek: 'https://api.deepseek.com',
};

const keyNames: Record<ModelProvider, readonly string[]> = {
  openai: ['OPENAI_API_KEY'],
  anthropic: ['ANTHROPIC_API_KEY'],
  google: ['GOOGLE_API_KEY', 'GEMINI_API_KEY'],
  xai: ['XAI_API_KEY'],
  mistral: ['MISTRAL_API_KEY'],
  deepseek: ['DEEPSEEK_API_KEY'],
};

/** Reads the settings: flags first, then the environment, then the defaults. Throws `ConfigError`. */
export function readConfig(flags: Flags = {}, env: Readonly<Record<string, string | undefined>> = process.env): Config {
  const text = (name: string): string | undefined => env[name]?.trim() || undefined;
  const dataDir = path.resolve(flags.dataDir ?? text('SLIPWAY_DATA_DIR') ?? path.join(homedir(), '.slipway'));
  const masterKey = text('SLIPWAY_MASTER_KEY');
  const masterKeyFile = text('SLIPWAY_MASTER_KEY_FILE');
  const publicUrl = flags.publicUrl ?? text('SLIPWAY_PUBLIC_URL');
  const mirror = text('SLIPWAY_DEBIAN_MIRROR');
  return Object.freeze({
    dataDir,
    listen: readListen(flags.listen ?? text('SLIPWAY_LISTEN') ?? '127.0.0.1:4800'),
    publicUrl: publicUrl === undefined ? null : readUrl('SLIPWAY_PUBLIC_URL', publicUrl),
    masterKey:
      masterKey !== undefined
        ? { text: masterKey }
        : masterKeyFile !== undefined
          ? { file: path.resolve(masterKeyFile), create: false }
          : { file: path.join(dataDir, 'master.key'), create: true },
    dockerHost: text('DOCKER_HOST') ?? null,
    maxConcurrentRuns: readInteger('SLIPWAY_MAX_CONCURRENT_RUNS', text('SLIPWAY_MAX_CONCURRENT_RUNS'), 4, 1, 1000),
    egressAllowPrivate: (text('SLIPWAY_EGRESS_ALLOW_PRIVATE') ?? '')
      .split(',')
      .map((entry) => entry.trim())
      .filter((entry) => entry !== ''),
    egressExtraCa: text('SLIPWAY_EGRESS_EXTRA_CA') ?? null,
    egressLimits: readEgressLimits(text),
    upstreamProxy: {
      https: readProxy('HTTPS_PROXY', text('https_proxy') ?? text('HTTPS_PROXY')),
      http: readProxy('HTTP_PROXY', text('http_proxy') ?? text('HTTP_PROXY')),
      noProxy: readNoProxy(text('no_proxy') ?? text('NO_PROXY') ?? ''),
    },
    egressTrustProxyDns: readSwitch('SLIPWAY_EGRESS_TRUST_PROXY_DNS', text('SLIPWAY_EGRESS_TRUST_PROXY_DNS')),
    sandboxImage: text('SLIPWAY_SANDBOX_IMAGE') ?? null,
    doorVolume: readVolume('SLIPWAY_DOOR_VOLUME', text('SLIPWAY_DOOR_VOLUME')),
    cacheDir: path.join(path.resolve(text('XDG_CACHE_HOME') ?? path.join(homedir(), '.cache')), 'slipway'),
    debianMirror: mirror === undefined ? null : readUrl('SLIPWAY_DEBIAN_MIRROR', mirror),
    sandboxLimits: {
      memoryBytes:
        readInteger('SLIPWAY_SANDBOX_MEMORY_MB', text('SLIPWAY_SANDBOX_MEMORY_MB'), 2048, 64, 1_048_576) * 1_048_576,
      cpus: readDecimal('SLIPWAY_SANDBOX_CPUS', text('SLIPWAY_SANDBOX_CPUS'), 2, 0.1, 1024),
      processes: readInteger('SLIPWAY_SANDBOX_PROCESSES', text('SLIPWAY_SANDBOX_PROCESSES'), 512, 16, 1_000_000),
    },
    modelKeys: Object.fromEntries(
      modelProviders.flatMap((provider) => {
        const key = keyNames[provider].map(text).find((value) => value !== undefined);
        return key === undefined ? [] : [[provider, key]];
      }),
    ),
    modelBaseUrls: Object.fromEntries(
      modelProviders.map((provider) => {
        const name = `${provider.toUpperCase()}_BASE_URL`;
        return [provider, readUrl(name, text(name) ?? usualBaseUrls[provider])];
      }),
    ) as Record<ModelProvider, string>,
  });
}

const mostBytes = Number.MAX_SAFE_INTEGER;

function readEgressLimits(text: (name: string) => string | undefined): EgressSettings {
  const integer = (name: string, usual: number, least: number, most: number) =>
    readInteger(`SLIPWAY_EGRESS_${name}`, text(`SLIPWAY_EGRESS_${name}`), usual, least, most);
  return {
    connections: integer('MAX_CONNECTIONS', 512, 1, 65_536),
    headBytes: integer('HEADER_BYTES', 65_536, 4_096, 1_048_576),
    headTimeoutMs: integer('HEADER_SECONDS', 120, 1, 86_400) * 1000,
    idleMs: integer('IDLE_SECONDS', 900, 0, 604_800) * 1000,
    maxBytesUp: integer('MAX_BYTES_UP', 0, 0, mostBytes),
    maxBytesDown: integer('MAX_BYTES_DOWN', 0, 0, mostBytes),
  };
}

/** Credentials are welcome here, so no message repeats the value. */
function readProxy(name: string, value: string | undefined): string | null {
  if (value === undefined) return null;
  // `proxy.example:3128` alone is what curl takes as well; as a URL it would have the scheme "proxy.example".
  const url = URL.parse(value.includes('://') ? value : `http://${value}`);
  if (!url || (url.protocol !== 'http:' && url.protocol !== 'https:') || url.hostname === '') {
    throw new ConfigError(`${name} must be an http:// or https:// address of a proxy; no other kind is understood.`);
  }
  if (url.pathname !== '/' || url.search !== '' || url.hash !== '') {
    throw new ConfigError(`${name} must be the address of a proxy without a path behind it.`);
  }
  if (!isDecodable(url.username) || !isDecodable(url.password)) {
    throw new ConfigError(`${name} holds credentials with a lone "%": write it as %25.`);
  }
  return url.href;
}

function isDecodable(text: string): boolean {
  try {
    decodeURIComponent(text);
    return true;
  } catch {
    return false;
  }
}

function readNoProxy(value: string): string[] {
  const entries = value.split(/[\s,]+/).filter((entry) => entry !== '');
  const odd = entries.find((entry) => !/^(?:\*|[\w.*:[\]-]+(?:\/\d{1,3})?)$/.test(entry));
  if (odd !== undefined) throw new ConfigError('NO_PROXY must be a list of names, addresses and CIDRs, with commas.');
  return entries;
}

function readSwitch(name: string, value: string | undefined): boolean {
  if (value === undefined || value === 'false') return false;
  if (value === 'true') return true;
  throw new ConfigError(`${name} must be true or false.`);
}

function readListen(value: string): { host: string; port: number } {
  const match = /^(?:\[([0-9a-fA-F:.]+)\]|([^:]+)):(\d{1,5})$/.exec(value);
  const port = Number(match?.[3]);
  if (!match || port > 65_535)
    throw new ConfigError(`SLIPWAY_LISTEN must be HOST:PORT, for example 127.0.0.1:4800, not "${value}".`);
  return { host: match[1] ?? match[2] ?? '', port };
}

function readVolume(name: string, value: string | undefined): { name: string; path: string } | null {
  if (value === undefined) return null;
  const [, volume, mounted] = /^([a-zA-Z0-9][a-zA-Z0-9_.-]+):(\/[^:]+)$/.exec(value) ?? [];
  if (volume === undefined || mounted === undefined) {
    throw new ConfigError(`${name} must be VOLUME:PATH, for example slipway-doors:/run/slipway, not "${value}".`);
  }
  return { name: volume, path: path.normalize(mounted) };
}

function readUrl(name: string, value: string): string {
  const url = URL.parse(value);
  if (!url || (url.protocol !== 'http:' && url.protocol !== 'https:'))
    throw new ConfigError(`${name} must be an http:// or https:// address.`);
  if (url.username !== '' || url.password !== '') throw new ConfigError(`${name} must not hold credentials.`);
  return value.replace(/\/+$/, '');
}

function readInteger(name: string, value: string | undefined, usual: number, least: number, most: number): number {
  if (value === undefined) return usual;
  if (!/^\d+$/.test(value) || Number(value) < least || Number(value) > most) {
    throw new ConfigError(`${name} must be a whole number from ${least} to ${most}.`);
  }
  return Number(value);
}

function readDecimal(name: string, value: string | undefined, usual: number, least: number, most: number): number {
  if (value === undefined) return usual;
  const number = /^\d+(?:\.\d+)?$/.test(value) ? Number(value) : Number.NaN;
  if (!(number >= least && number <= most)) throw new ConfigError(`${name} must be a number from ${least} to ${most}.`);
  return number;
}
