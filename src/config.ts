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
  readonly sandboxImage: string | null;
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
    sandboxImage: text('SLIPWAY_SANDBOX_IMAGE') ?? null,
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

function readListen(value: string): { host: string; port: number } {
  const match = /^(?:\[([0-9a-fA-F:.]+)\]|([^:]+)):(\d{1,5})$/.exec(value);
  const port = Number(match?.[3]);
  if (!match || port > 65_535)
    throw new ConfigError(`SLIPWAY_LISTEN must be HOST:PORT, for example 127.0.0.1:4800, not "${value}".`);
  return { host: match[1] ?? match[2] ?? '', port };
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
