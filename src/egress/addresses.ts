import { BlockList, isIP } from 'node:net';
import { networkInterfaces } from 'node:os';

/** Networks that are not the public internet (IANA's special-purpose registries), tunnels to them included. */
const special4 = [
  '0.0.0.0/8',
  '10.0.0.0/8',
  '100.64.0.0/10',
  '127.0.0.0/8',
  // The metadata service of Azure stands at an address of the public range.
  '168.63.129.16/32',
  '169.254.0.0/16',
  '172.16.0.0/12',
  '192.0.0.0/24',
  '192.0.2.0/24',
  '192.88.99.0/24',
  '192.168.0.0/16',
  '198.18.0.0/15',
  '198.51.100.0/24',
  '203.0.113.0/24',
  '224.0.0.0/4',
  '240.0.0.0/4',
];
/**
 * Public IPv6 addresses all begin with the bits 001. Outside of that are loopback, IPv4 in other clothes (compatible,
 * translated, NAT64 with its local-use range), unique local (a metadata service among them), link-local, multicast.
 * Inside are Teredo and other protocol ranges, documentation and 6to4.
 */
const special6 = ['::/3', '4000::/2', '8000::/1', '2001::/23', '2001:db8::/32', '2002::/16', '3fff::/20'];

/** A set of addresses. An IPv4 address inside IPv6 (`::ffff:10.0.0.1`) is taken as the IPv4 address that it is. */
export interface Networks {
  has(address: string): boolean;
}

/** Undefined when one of the texts is not `address/prefix`. */
export function parseNetworks(texts: readonly string[]): Networks | undefined {
  // One list per family: in a common one, `::/3` would hold every IPv4 address as well, as IPv6 maps it.
  const lists = { 4: new BlockList(), 6: new BlockList() };
  for (const text of texts) {
    const match = /^([0-9a-fA-F:.]+)\/(\d{1,3})$/.exec(text);
    const address = match?.[1] ?? '';
    const prefix = Number(match?.[2]);
    const family = isIP(address);
    if (family === 4 && prefix <= 32) lists[4].addSubnet(address, prefix, 'ipv4');
    else if (family === 6 && prefix <= 128) lists[6].addSubnet(address, prefix, 'ipv6');
    else return undefined;
  }
  return {
    has(address) {
      const plain = plainAddress(address);
      const family = isIP(plain);
      if (family === 4) return lists[4].check(plain, 'ipv4');
      return family === 6 && lists[6].check(plain, 'ipv6');
    },
  };
}

const special = parseNetworks([...special4, ...special6]);

/**
 * Whether an address may be reached only when the settings say so. Whatever is no address counts as private, and so do
 * this machine's own: what listens here may rely on a firewall that a connection from inside never meets.
 */
export function isPrivateAddress(address: string, own: Networks = ownAddresses()): boolean {
  const plain = plainAddress(address);
  if (isIP(plain) === 0 || plain.includes('%') || special === undefined) return true;
  return special.has(plain) || own.has(plain);
}

const ownAddressesMs = 5_000;
let lastOwn: { readonly list: Networks; readonly until: number } | undefined;

function ownAddresses(): Networks {
  const now = performance.now();
  if (lastOwn === undefined || lastOwn.until <= now) {
    const addresses = Object.values(networkInterfaces()).flatMap((found) => found?.map((entry) => entry.address) ?? []);
    const networks = addresses
      .filter((address) => isIP(address) !== 0 && !address.includes('%'))
      .map((address) => `${address}/${isIP(address) === 4 ? 32 : 128}`);
    lastOwn = { list: parseNetworks(networks) ?? nowhere, until: now + ownAddressesMs };
  }
  return lastOwn.list;
}

const nowhere: Networks = { has: () => false };

/**
 * Whether a host is a number that some programs read as an IPv4 address (`127.1`, `0x7f.0.0.1`, `2130706433`), as the
 * URL standard tells: the last label is a number. Such a host is refused, for every reader may see another address.
 */
export function isOddAddress(host: string): boolean {
  if (isIP(host) !== 0) return false;
  const last = host.replace(/\.$/, '').split('.').at(-1) ?? '';
  return /^(?:\d+|0x[0-9a-f]*)$/i.test(last);
}

/** `::ffff:a.b.c.d` in any spelling as `a.b.c.d`; every other address as it is. */
export function plainAddress(address: string): string {
  if (isIP(address) !== 6) return address;
  const groups = groupsOf(address);
  const [high = 0, low = 0] = groups.slice(6);
  const isMapped = groups.slice(0, 5).every((group) => group === 0) && groups[5] === 0xffff;
  return isMapped ? `${high >> 8}.${high & 255}.${low >> 8}.${low & 255}` : address;
}

/** The eight groups of a valid IPv6 address. */
function groupsOf(address: string): number[] {
  const withoutZone = address.replace(/%.*$/, '');
  const dotted = /(\d+)\.(\d+)\.(\d+)\.(\d+)$/.exec(withoutZone);
  const [a = 0, b = 0, c = 0, d = 0] = dotted ? dotted.slice(1).map(Number) : [];
  const hex = dotted
    ? `${withoutZone.slice(0, dotted.index)}${((a << 8) | b).toString(16)}:${((c << 8) | d).toString(16)}`
    : withoutZone;
  const [head = '', tail] = hex.split('::');
  const parse = (part: string) => (part === '' ? [] : part.split(':').map((group) => Number.parseInt(group, 16)));
  const front = parse(head);
  const back = tail === undefined ? [] : parse(tail);
  return [...front, ...Array<number>(Math.max(0, 8 - front.length - back.length)).fill(0), ...back];
}
