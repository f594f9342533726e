import { describe, expect, test } from 'bun:test';
import { chmod, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { ConfigError } from '../../src/config.ts';
import { readMasterKey } from '../../src/secrets/master-key.ts';

const key = Buffer.from(Array.from({ length: 32 }, (_, place) => 255 - place));

async function directory() {
  const name = await mkdtemp(path.join(tmpdir(), 'slipway-key-'));
  return { name, file: path.join(name, 'master.key'), [Symbol.asyncDispose]: () => rm(name, { recursive: true }) };
}

describe('a master key given as text', () => {
  test.each(['base64', 'base64url', 'hex'] as const)('may be written as %s', async (encoding) => {
    expect(await readMasterKey({ text: ` ${key.toString(encoding)}\n` })).toEqual(key);
  });

  test.each(['', 'short', `${key.toString('hex')}00`, key.subarray(1).toString('base64'), '*'.repeat(43)])(
    'of another form is refused by its setting, without being repeated (%#)',
    async (text) => {
      const error = await readMasterKey({ text }).catch((thrown: unknown) => thrown);
      expect(error).toBeInstanceOf(ConfigError);
      expect((error as Error).message).toStartWith('SLIPWAY_MASTER_KEY ');
      if (text.length > 5) expect((error as Error).message).not.toContain(text);
    },
  );
});

describe('a master key file', () => {
  test('is made with mode 0600 where it may be, and read from then on', async () => {
    await using place = await directory();
    const made = await readMasterKey({ file: place.file, create: true });
    expect(made).toHaveLength(32);
    expect((await stat(place.file)).mode & 0o777).toBe(0o600);
    expect(await readMasterKey({ file: place.file, create: true })).toEqual(made);
    expect(await readdir(place.name)).toEqual(['master.key']);
  });

  test('is one and the same for all that start at nearly the same time', async () => {
    await using place = await directory();
    // Each comes one file operation after the one before, so that every step of making the key is met by another.
    const read = async (turn: number) => {
      for (let step = 0; step < turn; step++) await stat(place.name);
      return readMasterKey({ file: place.file, create: true });
    };
    const keys = await Promise.all(Array.from({ length: 24 }, (_, turn) => read(turn)));
    expect(new Set(keys.map((made) => made.toString('hex'))).size).toBe(1);
    expect(await readdir(place.name)).toEqual(['master.key']);
  });

  test('is not made where it may not be', async () => {
    await using place = await directory();
    await expect(readMasterKey({ file: place.file, create: false })).rejects.toThrow('SLIPWAY_MASTER_KEY_FILE');
    expect(await readdir(place.name)).toEqual([]);
  });

  test.each([0o640, 0o604, 0o644, 0o620])('of mode %o is refused with the mend', async (mode) => {
    await using place = await directory();
    await writeFile(place.file, key.toString('hex'));
    await chmod(place.file, mode);
    const reading = readMasterKey({ file: place.file, create: true });
    await expect(reading).rejects.toThrow(ConfigError);
    await expect(reading).rejects.toThrow('chmod 600');
  });

  test('that holds no key is refused and left as it is', async () => {
    await using place = await directory();
    await writeFile(place.file, 'no key', { mode: 0o600 });
    await expect(readMasterKey({ file: place.file, create: true })).rejects.toThrow('does not hold a master key');
    expect(await readFile(place.file, 'utf8')).toBe('no key');
  });

  test('in a directory that does not exist says what to do, without the path', async () => {
    await using place = await directory();
    const error = await readMasterKey({ file: path.join(place.name, 'none', 'k'), create: true }).catch(
      (e: Error) => e,
    );
    expect(error).toBeInstanceOf(ConfigError);
    expect((error as Error).message).not.toContain(place.name);
  });
});
