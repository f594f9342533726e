import { randomBytes } from 'node:crypto';
import { type FileHandle, link, open, unlink } from 'node:fs/promises';
import path from 'node:path';
import { type Config, ConfigError } from '../config.ts';

export const masterKeyBytes = 32;

const forms = `It must be ${masterKeyBytes} random bytes, written as base64, base64url or hex`;

/**
 * The installation's master key. Where the setting names a file that may be made, a missing one is made with mode
 * 0600: whole or not at all, and by one process only when several start at once. Throws `ConfigError`.
 */
export async function readMasterKey(setting: Config['masterKey']): Promise<Buffer> {
  if ('text' in setting) return parseMasterKey(setting.text, 'SLIPWAY_MASTER_KEY');
  const name = setting.create ? 'The master key file (master.key in the data directory)' : 'SLIPWAY_MASTER_KEY_FILE';
  const found = await readKeyFile(setting.file, name);
  if (found !== undefined) return parseMasterKey(found, name);
  if (!setting.create) {
    throw new ConfigError(`${name} names a file that does not exist. Put the master key there, or name another file.`);
  }
  await makeKeyFile(setting.file);
  const made = await readKeyFile(setting.file, name);
  if (made === undefined) throw new ConfigError(`${name} vanished while it was being made. Start again.`);
  return parseMasterKey(made, name);
}

function parseMasterKey(text: string, name: string): Buffer {
  const trimmed = text.trim();
  if (/^[0-9a-fA-F]{64}$/.test(trimmed)) return Buffer.from(trimmed, 'hex');
  if (/^[A-Za-z0-9+/_-]{43}=?$/.test(trimmed)) return Buffer.from(trimmed, 'base64');
  throw new ConfigError(`${name} does not hold a master key. ${forms}, for example from \`openssl rand -base64 32\`.`);
}

/** The file's text, or undefined when there is none. The mode is read from the open file, not from its name. */
async function readKeyFile(file: string, name: string): Promise<string | undefined> {
  let handle: FileHandle;
  try {
    handle = await open(file, 'r');
  } catch (cause) {
    if (errorCode(cause) === 'ENOENT') return undefined;
    throw new ConfigError(`${name} cannot be read (${errorCode(cause)}). Let the user that runs slipway read it.`, {
      cause,
    });
  }
  try {
    const { mode } = await handle.stat();
    if ((mode & 0o077) !== 0) {
      throw new ConfigError(`${name} can be read by other users of this machine. Run \`chmod 600\` on it.`);
    }
    return await handle.readFile('utf8');
  } finally {
    await handle.close();
  }
}

/**
 * Writes a fresh key to a file of a name of its own and then links it to its place. The link fails where another
 * process was first, whose key then counts, and nobody ever sees half a key.
 */
async function makeKeyFile(file: string): Promise<void> {
  const draft = `${file}.${randomBytes(6).toString('hex')}`;
  try {
    await writeDurably(draft, `${randomBytes(masterKeyBytes).toString('base64')}\n`);
    await link(draft, file).catch((error: unknown) => {
      if (errorCode(error) !== 'EEXIST') throw error;
    });
    await syncDirectory(path.dirname(file));
  } catch (cause) {
    throw new ConfigError(
      `master.key cannot be made in the data directory (${errorCode(cause)}). Make it writable, or set SLIPWAY_MASTER_KEY.`,
      { cause },
    );
  } finally {
    await unlink(draft).catch(() => undefined);
  }
}

async function writeDurably(file: string, text: string): Promise<void> {
  const handle = await open(file, 'wx', 0o600);
  try {
    await handle.writeFile(text);
    await handle.sync();
  } finally {
    await handle.close();
  }
}

async function syncDirectory(directory: string): Promise<void> {
  const handle = await open(directory, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

function errorCode(error: unknown): string {
  const code = (error as { code?: unknown } | null)?.code;
  return typeof code === 'string' ? code : 'unknown error';
}
