import { createCipheriv, createDecipheriv, createHmac, hkdfSync, randomBytes } from 'node:crypto';
import { type Config, ConfigError } from '../config.ts';
import type { Database } from '../db/database.ts';
import { settingStore } from '../db/settings.ts';
import { toBase62 } from '../kernel/id.ts';
import { masterKeyBytes, readMasterKey } from './master-key.ts';

/**
 * Seals values for the database. Every value has a data key of its own, wrapped under the master key, and both layers
 * are bound to `context` (the row and column, for example `secrets/<id>/value`): a sealed text that is copied to
 * another row, altered, or met with another master key does not open.
 */
export interface Vault {
  /** AES-256-GCM; the same plaintext seals to another text each time. */
  seal(plaintext: string, context: string): string;
  /** The plaintext. Throws `SealError` where key, context or text do not belong together. */
  open(sealed: string, context: string): string;
  /** HMAC-SHA-256 in base64url (43 characters), under a key of its own for each `use`. The same text, the same hash. */
  keyedHash(use: string, text: string): string;
  /** 10 base62 characters, constant for this installation: every placeholder carries them. */
  readonly marker: string;
  /** Tells master keys apart without saying anything about them. */
  readonly keyId: string;
}

/** A sealed text did not open. Holds neither the text nor the context. */
export class SealError extends Error {
  override readonly name = 'SealError';
}

const version = 's1';
const cipher = 'aes-256-gcm';
const nonceBytes = 12;
const tagBytes = 16;
const checkName = 'master_key_check';
const checkText = 'slipway';

/** Reads (or makes) the master key and derives the vault from it. Throws `ConfigError`. */
export async function openVault(masterKey: Config['masterKey']): Promise<Vault> {
  return vaultOf(await readMasterKey(masterKey));
}

/** The vault of a master key of 32 bytes. */
export function vaultOf(masterKey: Uint8Array): Vault {
  // Each use has a key of its own, so that what is shown (marker, key id) says nothing about what encrypts.
  const derive = (use: string, bytes: number) =>
    Buffer.from(hkdfSync('sha256', masterKey, '', `slipway/${use}`, bytes));
  const wrappingKey = derive('wrap', masterKeyBytes);
  const keyId = derive('key-id', 4).toString('hex');

  return {
    keyId,
    marker: toBase62(derive('marker', 32), 10),

    keyedHash: (use, text) =>
      createHmac('sha256', derive(`hash/${use}`, 32))
        .update(text)
        .digest('base64url'),

    seal(plaintext, context) {
      const dataKey = randomBytes(masterKeyBytes);
      const wrapped = encrypt(wrappingKey, dataKey, `data-key/${context}`);
      const value = encrypt(dataKey, Buffer.from(plaintext, 'utf8'), context);
      return [version, keyId, wrapped.toString('base64url'), value.toString('base64url')].join('.');
    },

    open(sealed, context) {
      const [form, sealedWith, wrapped, value, surplus] = sealed.split('.');
      if (form !== version || wrapped === undefined || value === undefined || surplus !== undefined) {
        throw new SealError('A sealed value has an unknown form.');
      }
      if (sealedWith !== keyId) throw new SealError('A sealed value was sealed with another master key.');
      const dataKey = decrypt(wrappingKey, wrapped, `data-key/${context}`);
      return decrypt(dataKey, value, context).toString('utf8');
    },
  };
}

/**
 * Tells at start whether this is the master key that the database was set up with, before anything is served. The
 * first call on a new database keeps a sealed constant there. Throws `ConfigError` for another key.
 */
export async function verifyMasterKey(database: Database, vault: Vault): Promise<void> {
  const kept = await settingStore(database).keepFirst(checkName, vault.seal(checkText, checkName));
  try {
    if (vault.open(kept, checkName) === checkText) return;
  } catch (error) {
    if (!(error instanceof SealError)) throw error;
  }
  throw new ConfigError(
    'The master key is not the one that this data directory was set up with. Give the right one with ' +
      'SLIPWAY_MASTER_KEY, SLIPWAY_MASTER_KEY_FILE or master.key in the data directory.',
  );
}

/** True where `verifyMasterKey` has run on this database before: then a master key exists and must not be made anew. */
export async function hasMasterKey(database: Database): Promise<boolean> {
  return (await settingStore(database).find(checkName)) !== undefined;
}

/** nonce, ciphertext and tag, one after the other. */
function encrypt(key: Uint8Array, plaintext: Uint8Array, context: string): Buffer {
  const nonce = randomBytes(nonceBytes);
  const gcm = createCipheriv(cipher, key, nonce, { authTagLength: tagBytes }).setAAD(Buffer.from(context, 'utf8'));
  return Buffer.concat([nonce, gcm.update(plaintext), gcm.final(), gcm.getAuthTag()]);
}

function decrypt(key: Uint8Array, sealed: string, context: string): Buffer {
  const bytes = Buffer.from(sealed, 'base64url');
  if (bytes.length < nonceBytes + tagBytes) throw new SealError('A sealed value is cut short.');
  const gcm = createDecipheriv(cipher, key, bytes.subarray(0, nonceBytes), { authTagLength: tagBytes });
  gcm.setAAD(Buffer.from(context, 'utf8')).setAuthTag(bytes.subarray(-tagBytes));
  try {
    return Buffer.concat([gcm.update(bytes.subarray(nonceBytes, -tagBytes)), gcm.final()]);
  } catch (cause) {
    throw new SealError('A sealed value was altered or belongs elsewhere.', { cause });
  }
}
