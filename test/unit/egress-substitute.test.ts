import { expect, test } from 'bun:test';
import type { EgressSecret } from '../../src/egress/egress.ts';
import { redactText, secretsForHost, substituteHead } from '../../src/egress/substitute.ts';

const secret = (over: Partial<EgressSecret>): EgressSecret => ({
  name: 'A',
  placeholder: 'ph_AAAA',
  value: 'value-of-A',
  allowedHosts: ['h.test'],
  ...over,
});

test('a value that begins like another one does not leave a rest of it behind', () => {
  const short = secret({ value: 'common-start', placeholder: 'ph_1' });
  const long = secret({ name: 'B', value: 'common-start-and-rest', placeholder: 'ph_2' });
  const { redactions } = secretsForHost([short, long], 'h.test', true);
  expect(redactText('x: common-start-and-rest, common-start', redactions)).toBe('x: ph_2, ph_1');
});

test('every form in which a value may come back is redacted, and none that chance would write', () => {
  const { redactions } = secretsForHost([secret({ value: 'a "b" ü/c' }), secret({ value: 'short' })], 'h.test', true);
  const forms = redactions.map(({ needle }) => needle.toString());
  expect(forms).toEqual(['a "b" ü/c', 'a \\"b\\" ü/c', 'a%20%22b%22%20%C3%BC%2Fc']);
});

test('without TLS no secret is eligible', () => {
  expect(secretsForHost([secret({})], 'h.test', false)).toMatchObject({ eligible: [], redactions: [] });
});

test('a value that holds a replacement pattern is put in as it stands', () => {
  const dollars = secret({ value: "$& $1 $' $$" });
  expect(substituteHead('/', [['X', 'ph_AAAA']], [dollars]).headers).toEqual([['X', "$& $1 $' $$"]]);
});

test('credentials that hold no placeholder keep their very spelling', () => {
  const header = ['Authorization', 'basic  dTpw'] as const;
  expect(substituteHead('/', [header], [secret({})])).toMatchObject({ headers: [header], used: [], echoes: [] });
});
