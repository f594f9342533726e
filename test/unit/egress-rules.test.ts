import { describe, expect, test } from 'bun:test';
import { ConfigError } from '../../src/config.ts';
import { isPrivateAddress } from '../../src/egress/addresses.ts';
import {
  denyingPolicy,
  hasDotSegment,
  matchesHost,
  normalHost,
  parseAllowPrivate,
  parseAuthority,
} from '../../src/egress/rules.ts';

test.each([
  ['api.example.com', 'api.example.com', true],
  ['api.example.com', 'x.api.example.com', false],
  ['*.example.com', 'api.example.com', true],
  ['*.example.com', 'a.b.example.com', true],
  ['*.example.com', 'example.com', false],
  ['*.example.com', 'evilexample.com', false],
  ['*.0.0.1', '127.0.0.1', false],
  ['127.0.0.1', '127.0.0.1', true],
  ['localhost', 'localhost', true],
])('host %s covers %s: %p', (pattern, host, covered) => {
  expect(matchesHost(pattern, host)).toBe(covered);
});

test.each([
  ['API.Example.com.', 'api.example.com'],
  ['[::1]', '::1'],
  ['[fe80::1%eth0]', undefined],
  ['[nonsense]', undefined],
  ['a b', undefined],
  ['a..b', undefined],
  ['münchen.de', undefined],
  ['', undefined],
])('the host %p is read as %p', (text, host) => {
  expect(normalHost(text)).toBe(host);
});

test.each([
  ['h.test:8443', { host: 'h.test', port: 8443 }],
  ['h.test', { host: 'h.test', port: 443 }],
  ['[::1]:80', { host: '::1', port: 80 }],
  ['h.test:0', undefined],
  ['h.test:65536', undefined],
  ['h.test:', undefined],
  ['user@h.test', undefined],
  ['::1:80', undefined],
])('the authority %p is read as %p', (text, authority) => {
  expect(parseAuthority(text, 443)).toEqual(authority as never);
});

describe('addresses', () => {
  test.each([
    '0.0.0.0',
    '10.1.2.3',
    '100.64.0.1',
    '127.0.0.1',
    '127.9.9.9',
    '169.254.169.254',
    '172.16.0.1',
    '172.31.255.255',
    '192.168.1.1',
    '198.18.0.1',
    '224.0.0.1',
    '255.255.255.255',
    '::',
    '::1',
    '::127.0.0.1',
    '::ffff:127.0.0.1',
    '::ffff:7f00:1',
    '0:0:0:0:0:ffff:10.0.0.1',
    '64:ff9b::7f00:1',
    '64:ff9b:1::1',
    '2001:db8::1',
    '2002:7f00:1::',
    'fc00::1',
    'fd12:3456::1',
    'fe80::1',
    'fe80::1%eth0',
    'ff02::1',
    'not an address',
    '',
  ])('%p is private', (address) => expect(isPrivateAddress(address)).toBe(true));

  test.each(['1.1.1.1', '93.184.216.34', '172.32.0.1', '2606:4700::1111', '2a00:1450::1', '::ffff:1.1.1.1'])(
    '%p is public',
    (address) => expect(isPrivateAddress(address)).toBe(false),
  );
});

describe('SLIPWAY_EGRESS_ALLOW_PRIVATE', () => {
  const open = (entries: string[], host: string, port: number, address: string) => {
    const access = parseAllowPrivate(entries);
    return access.portOpen(host, port) && access.addressOpen({ host, port }, address);
  };
  test.each([
    [[], 'h.test', 443, '1.1.1.1', true],
    [[], 'h.test', 443, '10.0.0.1', false],
    [[], 'h.test', 8443, '1.1.1.1', false],
    [['h.test'], 'h.test', 443, '10.0.0.1', true],
    [['h.test'], 'h.test', 8443, '10.0.0.1', false],
    [['h.test'], 'other.test', 443, '10.0.0.1', false],
    [['*.test'], 'h.test', 80, '10.0.0.1', true],
    [['h.test:8443'], 'h.test', 8443, '10.0.0.1', true],
    [['h.test:8443'], 'h.test', 443, '10.0.0.1', false],
    [['h.test:8443'], 'other.test', 8443, '1.1.1.1', false],
    [['10.0.0.0/8'], 'h.test', 443, '10.0.0.1', true],
    [['10.0.0.0/8'], 'h.test', 443, '::ffff:10.0.0.1', true],
    [['10.0.0.0/8'], 'h.test', 8443, '10.0.0.1', false],
    [['10.0.0.0/8', 'h.test:8443'], 'other.test', 8443, '10.0.0.1', false],
    [['10.0.0.0/8'], 'h.test', 443, '192.168.0.1', false],
    [['127.0.0.1'], 'localhost', 80, '127.0.0.1', true],
    [['127.0.0.1:9000'], '127.0.0.1', 9000, '127.0.0.1', true],
    [['fd00::/8'], 'h.test', 443, 'fd00::1', true],
    [['[::1]:8080'], '::1', 8080, '::1', true],
  ] as const)('%p opens %s:%d at %s: %p', (entries, host, port, address, opened) => {
    expect(open([...entries], host, port, address)).toBe(opened);
  });

  test.each(['10.0.0.0/33', '10.0.0/8', 'h.test:99999', 'https://h.test', 'a b', '*.1.2.3.4', 'fd00::/200', '*'])(
    'the entry %p is refused by name',
    (entry) => {
      expect(() => parseAllowPrivate(['fine.test', entry])).toThrow(ConfigError);
      expect(() => parseAllowPrivate(['fine.test', entry])).toThrow(/SLIPWAY_EGRESS_ALLOW_PRIVATE holds ".+"/);
    },
  );
});

test.each([
  ['2001:db8::1', '2001:db8:0:0::1', true],
  ['[2001:DB8::1]', '2001:db8::1', true],
  ['2001:db8::1', '2001:db8::2', false],
  ['2001:db8::1', 'host.test', false],
  ['::ffff:93.184.216.1', '93.184.216.1', true],
  ['not:an:address', 'host.test', false],
])('the address %p covers %p: %p, however it is spelled', (pattern, host, covers) => {
  expect(matchesHost(pattern, host)).toBe(covers);
});

test('each of the policies must let a host be reached, and the first that does not is told', () => {
  const only = { name: 'a', default: 'deny', hosts: ['*.one.test', 'two.test'] } as const;
  const but = { name: 'b', default: 'allow', hosts: ['bad.one.test', '93.184.216.1'] } as const;
  const deniedBy = (host: string) => denyingPolicy([only, but], host)?.name;
  expect(['x.one.test', 'a.b.one.test', 'two.test'].map(deniedBy)).toEqual([undefined, undefined, undefined]);
  expect(['one.test', 'x.two.test', '93.184.216.1', 'bad.one.test'].map(deniedBy)).toEqual(['a', 'a', 'a', 'b']);
  expect(denyingPolicy([but], '93.184.216.1')).toBe(but);
  expect(denyingPolicy([but], '93.184.216.2')).toBeUndefined();
  expect(denyingPolicy([], 'any.test')).toBeUndefined();
});

test('a dot segment is found in any of its spellings, and a name with dots is none', () => {
  for (const path of ['/..', '/.', '/a/../b', '/%2E./b', '/a%5c..', '/..;p', '/a/.%2e%2Fb']) {
    expect([path, hasDotSegment(path)]).toEqual([path, true]);
  }
  for (const path of ['/', '/...', '/.a', '/a..', '/a/..b/', '/%252e', '/a.b/c%2ed']) {
    expect([path, hasDotSegment(path)]).toEqual([path, false]);
  }
});
