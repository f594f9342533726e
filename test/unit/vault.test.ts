import { describe, expect, test } from 'bun:test';
import { SealError, vaultOf } from '../../src/secrets/vault.ts';

const vault = vaultOf(new Uint8Array(32).fill(7));
const context = 'secrets/0199/value';

describe('a sealed value', () => {
  test.each(['x', 'ghp_0123456789', 'ключ – 鍵 – 🔑', ' kept \n as sent ', 'a'.repeat(65_536)])(
    'opens to what was sealed (%#)',
    (plain) => {
      expect(vault.open(vault.seal(plain, context), context)).toBe(plain);
    },
  );

  test('is another text each time and does not show the plaintext', () => {
    const sealed = vault.seal('hunter2-hunter2', context);
    expect(vault.seal('hunter2-hunter2', context)).not.toBe(sealed);
    expect(sealed).not.toContain('hunter2');
    expect(Buffer.from(sealed.split('.')[3] ?? '', 'base64url').toString('latin1')).not.toContain('hunter2');
  });

  test('does not open in another row', () => {
    expect(() => vault.open(vault.seal('v', context), 'secrets/0200/value')).toThrow(SealError);
  });

  test('does not open under another master key', () => {
    const other = vaultOf(new Uint8Array(32).fill(8));
    expect(() => other.open(vault.seal('v', context), context)).toThrow('another master key');
  });

  test('does not open when its key id is rewritten to fit', () => {
    const other = vaultOf(new Uint8Array(32).fill(8));
    const forged = vault.seal('v', context).replace(vault.keyId, other.keyId);
    expect(() => other.open(forged, context)).toThrow(SealError);
  });

  test('does not open when any part of it was altered', () => {
    const sealed = vault.seal('value', context);
    for (const place of sealed.split('').keys()) {
      const changed = sealed[place] === 'A' ? 'B' : 'A';
      const altered = sealed.slice(0, place) + changed + sealed.slice(place + 1);
      // The last character of a base64url part can carry bits that mean nothing.
      const bytes = (text: string) => text.split('.').map((part) => Buffer.from(part, 'base64url').toString('hex'));
      if (Bun.deepEquals(bytes(altered), bytes(sealed))) continue;
      expect(() => vault.open(altered, context)).toThrow(SealError);
    }
  });

  test('does not open when its parts are mixed with those of another', () => {
    const one = vault.seal('one', context).split('.');
    const other = vault.seal('other', context).split('.');
    expect(() => vault.open([one[0], one[1], one[2], other[3]].join('.'), context)).toThrow(SealError);
  });

  test.each(['', 'plain', 's1.a.b', 's1.a.b.c.d', `s1.${vault.keyId}..`, `s2.${vault.keyId}.AAAA.AAAA`])(
    'that has no known form is refused (%#)',
    (text) => expect(() => vault.open(text, context)).toThrow(SealError),
  );
});

test('the marker is 10 base62 characters, the same for a master key and another for another', () => {
  expect(vault.marker).toMatch(/^[0-9A-Za-z]{10}$/);
  expect(vaultOf(new Uint8Array(32).fill(7)).marker).toBe(vault.marker);
  expect(vaultOf(new Uint8Array(32).fill(8)).marker).not.toBe(vault.marker);
});

test('a keyed hash is the same for a text, another for another use, text or master key', () => {
  const hash = vault.keyedHash('model-cache', 'run');
  expect(hash).toMatch(/^[A-Za-z0-9_-]{43}$/);
  expect(vaultOf(new Uint8Array(32).fill(7)).keyedHash('model-cache', 'run')).toBe(hash);
  const others = [
    vault.keyedHash('other', 'run'),
    vault.keyedHash('model-cache', 'run2'),
    vaultOf(new Uint8Array(32).fill(8)).keyedHash('model-cache', 'run'),
  ];
  expect(new Set([hash, ...others]).size).toBe(4);
});
