import { describe, expect, test } from 'bun:test';
import { makePlaceholder } from '../../src/secrets/placeholder.ts';

const marker = 'Mark3r0xYz';
const bytes = (text: string) => Buffer.byteLength(text, 'utf8');

describe('a placeholder', () => {
  test.each([
    ['ghp_', `ghp_${'a'.repeat(36)}`],
    ['github_pat_', `github_pat_${'a'.repeat(82)}`],
    ['sk-ant-api03-', `sk-ant-api03-${'a'.repeat(95)}`],
    ['sk-proj-', `sk-proj-${'a'.repeat(150)}`],
    ['sk-', `sk-${'a'.repeat(48)}`],
    ['glpat-', `glpat-${'a'.repeat(26)}`],
    ['xoxb-', `xoxb-${'1'.repeat(50)}`],
    ['npm_', `npm_${'a'.repeat(36)}`],
    ['hf_', `hf_${'a'.repeat(34)}`],
    ['ph_', 'a'.repeat(40)],
    ['ph_', `x-ghp_${'a'.repeat(40)}`],
  ])('keeps the prefix %s and the length of the value', (prefix, value) => {
    const made = makePlaceholder(value, marker);
    expect(made).toStartWith(prefix + marker);
    expect(made).toHaveLength(value.length);
    expect(made.slice(prefix.length + marker.length)).toMatch(/^[0-9A-Za-z]{16,}$/);
  });

  test.each(['ключ'.repeat(10), '鍵'.repeat(12), '🔑'.repeat(10), `ghp_${'é'.repeat(20)}`])(
    'has as many bytes as a value of several bytes a character (%s)',
    (value) => expect(makePlaceholder(value, marker)).toHaveLength(bytes(value)),
  );

  test('has the length of the value from the least room of 16 random characters up to 512 bytes', () => {
    const least = 'ph_'.length + marker.length + 16;
    expect(makePlaceholder('v'.repeat(least), marker)).toHaveLength(least);
    expect(makePlaceholder('v'.repeat(512), marker)).toHaveLength(512);
  });

  test.each(['v', '', 'v'.repeat(28), 'v'.repeat(513), '鍵'.repeat(171), 'v'.repeat(65_536)])(
    'otherwise ends in 22 random characters (%#)',
    (value) => expect(makePlaceholder(value, marker)).toMatch(/^ph_Mark3r0xYz[0-9A-Za-z]{22}$/),
  );

  test('consists of characters that need no escaping in a URL', () => {
    for (const value of ['SG.abc'.repeat(9), 'ya29.'.repeat(20), `sk-ant-${'%/?&'.repeat(30)}`]) {
      const made = makePlaceholder(value, marker);
      expect(made).toMatch(/^[A-Za-z0-9._~-]+$/);
      expect(encodeURIComponent(made)).toBe(made);
    }
  });

  test('is never made twice and says nothing of the value beyond prefix and length', () => {
    const value = 'ghp_SecretSecretSecretSecretSecretSecret';
    const made = Array.from({ length: 2000 }, () => makePlaceholder(value, marker));
    expect(new Set(made).size).toBe(2000);
    expect(made.some((text) => text.includes('Secret'))).toBe(false);
  });
});
