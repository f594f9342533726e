import { expect, test } from 'bun:test';
import { type EgressSecret, usualSurfaces } from '../../src/egress/egress.ts';
import { secretsForHost, substituteHead } from '../../src/egress/substitute.ts';

const secret = (over: Partial<EgressSecret>): EgressSecret => ({
  name: 'A',
  placeholder: 'ph_AAAA',
  value: 'value-of-A',
  allowedHosts: ['h.test'],
  surfaces: usualSurfaces,
  ...over,
});

test('without TLS no secret is eligible', () => {
  expect(secretsForHost([secret({})], 'h.test', false)).toMatchObject({ eligible: [] });
});

test('a value that holds a replacement pattern is put in as it stands', () => {
  const dollars = secret({ value: "$& $1 $' $$" });
  expect(substituteHead('/', [['X', 'ph_AAAA']], [dollars]).headers).toEqual([['X', "$& $1 $' $$"]]);
});

test('two secrets with one placeholder: the one that may go to the host on that surface is put in', () => {
  const secrets = [
    secret({ name: 'ELSEWHERE', allowedHosts: ['other.test'] }),
    secret({ name: 'IN_BODY', value: 'for-bodies', surfaces: ['body'] }),
    secret({ name: 'IN_HEADERS', value: 'for-headers', surfaces: ['headers'] }),
  ];
  const { eligible, foreign } = secretsForHost(secrets, 'h.test', true);
  expect(foreign).toEqual([]);
  const { headers, used } = substituteHead('/?ph_AAAA', [['X', 'ph_AAAA']], eligible);
  expect({ headers, used: used.map(({ name }) => name) }).toEqual({
    headers: [['X', 'for-headers']],
    used: ['IN_HEADERS'],
  });
});

test('a value that holds a placeholder is not searched for it', () => {
  const secrets = [secret({ value: 'ph_BBBB' }), secret({ name: 'B', placeholder: 'ph_BBBB', value: 'value-of-B' })];
  expect(substituteHead('/?ph_AAAA', [], secrets)).toMatchObject({ target: '/?ph_BBBB', used: [{ name: 'A' }] });
});

test('credentials that hold no placeholder keep their very spelling', () => {
  const header = ['Authorization', 'basic  dTpw'] as const;
  expect(substituteHead('/', [header], [secret({})])).toMatchObject({ headers: [header], used: [] });
});
