import { expect, test } from 'bun:test';
import { networkInterfaces } from 'node:os';
import { isOddAddress, isPrivateAddress, parseNetworks } from '../../src/egress/addresses.ts';

test.each([
  ['unspecified', '0.0.0.0'],
  ['loopback', '127.0.0.1'],
  ['private', '10.1.2.3'],
  ['private', '172.31.255.255'],
  ['private', '192.168.0.1'],
  ['shared by carriers', '100.64.0.1'],
  ['link-local, with the metadata service', '169.254.169.254'],
  ['metadata of Azure', '168.63.129.16'],
  ['protocol assignments, with the metadata service of Oracle', '192.0.0.192'],
  ['benchmarking', '198.18.0.1'],
  ['benchmarking', '198.19.255.255'],
  ['documentation', '192.0.2.1'],
  ['documentation', '198.51.100.1'],
  ['documentation', '203.0.113.1'],
  ['relays of 6to4', '192.88.99.1'],
  ['multicast', '224.0.0.251'],
  ['reserved', '240.0.0.1'],
  ['broadcast', '255.255.255.255'],
  ['unspecified', '::'],
  ['loopback', '::1'],
  ['IPv4-compatible', '::10.0.0.1'],
  ['IPv4-mapped', '::ffff:169.254.169.254'],
  ['IPv4-mapped, in full', '0000:0000:0000:0000:0000:ffff:0a00:0001'],
  ['IPv4-translated', '::ffff:0:127.0.0.1'],
  ['NAT64', '64:ff9b::a9fe:a9fe'],
  ['NAT64 with a public address', '64:ff9b::808:808'],
  ['NAT64 for local use', '64:ff9b:1::7f00:1'],
  ['NAT64 for local use', '64:ff9b:1:abcd:0:5:7f00:1'],
  ['discard only', '100::1'],
  ['Teredo', '2001:0:4136:e378:8000:63bf:3fff:fdd2'],
  ['benchmarking', '2001:2::1'],
  ['ORCHID', '2001:20::1'],
  ['documentation', '2001:db8::1'],
  ['documentation', '3fff::1'],
  ['6to4', '2002:7f00:1::'],
  ['SRv6 identifiers', '5f00::1'],
  ['unique local', 'fc00::1'],
  ['metadata of AWS', 'fd00:ec2::254'],
  ['link-local', 'fe80::1'],
  ['with a zone', 'fe80::1%eth0'],
  ['site-local', 'fec0::1'],
  ['multicast', 'ff02::1'],
  ['never assigned', '4000::1'],
  ['never assigned', '8000::1'],
  ['no address', 'example.com'],
  ['no address', ''],
])('%s: %s is private', (_, address) => {
  expect(isPrivateAddress(address)).toBe(true);
});

test.each([
  '1.1.1.1',
  '8.8.8.8',
  '93.184.216.34',
  '172.32.0.1',
  '100.128.0.1',
  '192.0.1.1',
  '198.20.0.1',
  '::ffff:8.8.8.8',
  '2606:4700::1111',
  '2001:4860:4860::8888',
  '2a00:1450::1',
  '3ffe:ffff::1',
])('%s is public', (address) => {
  expect(isPrivateAddress(address)).toBe(false);
});

test("every address of this machine's own is private", () => {
  const own = Object.values(networkInterfaces()).flatMap((found) => found?.map(({ address }) => address) ?? []);
  expect(own.length).toBeGreaterThan(0);
  expect(own.filter((address) => !isPrivateAddress(address))).toEqual([]);
  const publicOwn = parseNetworks(['93.184.216.34/32', '2606:4700::1/128']);
  for (const address of ['93.184.216.34', '::ffff:93.184.216.34', '2606:4700::1']) {
    expect(isPrivateAddress(address)).toBe(false);
    expect(isPrivateAddress(address, publicOwn)).toBe(true);
  }
});

test.each([
  '0x7f.1',
  '0x7f000001',
  '2130706433',
  '0177.0.0.1',
  '127.1',
  '127.0.1',
  '0',
  '1.2.3.0x4',
  '256.1.1.1',
  '1.2.3.4.5',
  '127.1.',
  'host.0x',
])('%s is an address in an odd notation', (host) => {
  expect(isOddAddress(host)).toBe(true);
});

test.each(['127.0.0.1', '::1', '::ffff:1.2.3.4', 'example.com', '1.example', '0x7f.example', 'a1', 'x0', '1e3.com'])(
  '%s is a name or a usual address',
  (host) => {
    expect(isOddAddress(host)).toBe(false);
  },
);
