import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import { type Config, ConfigError } from '../config.ts';
import type { Database } from '../db/database.ts';
import { MigrationError, migrate } from '../db/migrate.ts';
import { openSqlite } from '../db/sqlite.ts';
import { hasMasterKey, openVault, type Vault, verifyMasterKey } from '../secrets/vault.ts';

export interface Data {
  readonly database: Database;
  readonly vault: Vault;
  close(): Promise<void>;
}

/**
 * Opens what every command works on: the data directory (made with mode 0700), its database, brought up to date, and
 * the vault under the right master key. Throws `ConfigError` where directory, database or key are not usable.
 */
export async function openData(config: Config): Promise<Data> {
  const database = await openDatabase(config.dataDir);
  try {
    await migrate(database);
    await refuseLostKey(config.masterKey, database);
    const vault = await openVault(config.masterKey);
    await verifyMasterKey(database, vault);
    return { database, vault, close: () => database.close() };
  } catch (error) {
    await database.close();
    if (error instanceof MigrationError) throw new ConfigError(error.message, { cause: error });
    throw error;
  }
}

async function openDatabase(directory: string): Promise<Database> {
  try {
    await mkdir(directory, { recursive: true, mode: 0o700 });
  } catch (cause) {
    throw new ConfigError(
      'The data directory cannot be made. Name a directory that may be written with --data-dir or SLIPWAY_DATA_DIR.',
      { cause },
    );
  }
  // What openSqlite rejects with is meant for the user and names no path.
  return openSqlite(path.join(directory, 'slipway.db')).catch((cause: unknown) => {
    throw cause instanceof Error ? new ConfigError(`${cause.message}.`, { cause }) : cause;
  });
}

/** A lost key file is not made anew for a database that was set up with it: a new key would open nothing. */
async function refuseLostKey(setting: Config['masterKey'], database: Database): Promise<void> {
  if (!('file' in setting) || !setting.create) return;
  if (!(await hasMasterKey(database)) || (await Bun.file(setting.file).exists())) return;
  throw new ConfigError(
    'master.key is missing from the data directory, which was set up with it. Restore it from your backup, or give ' +
      'the key with SLIPWAY_MASTER_KEY: no secret can be read without it.',
  );
}
