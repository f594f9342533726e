import { BlockList, isIP } from 'node:net';

/** Networks that are not the public internet (IANA's special-purpose registries), tunnels to them included. */
const special4 = [
  '0.0.0.0/8',
  '10.0.0.0/8',
  '100.64.0.0/10',
  '127.0.0.0/8',
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
const special6 = [
  '::/96',
  '64:ff9b::/96',
  '64:ff9b:1::/48',
  '100::/64',
  '2001::/23',
  '2001:db8::/32',
  '2002::/16',
  '3fff::/20',
  '5f00::/16',
  'fc00::/7',
  'fe80::/10',
  'fec0::/10',
  'ff00::/8',
];

/** A set of addresses. An IPv4 address inside IPv6 (`::ffff:10.0.0.1`) is taken as the IPv4 address that it is. */
export interface Networks {
  has(address: string): boolean;
}

/** Undefined when one of the texts is not `address/prefix`. */
export function parseNetworks(texts: readonly string[]): Networks | undefined {
  const list = new BlockList();
  for (const text of texts) {
    const match = /^([0-9a-fA-F:.]+)\/(\d{1,3})$/.exec(text);
    const address = match?.[1] ?? '';
    const prefix = Number(match?.[2]);
    const family = isIP(address);
    if (family === 0 || prefix > (family === 4 ? 32 : 128)) return undefined;
    list.addSubnet(address, prefix, family === 4 ? 'ipv4' : 'ipv6');
  }
  return {
    has(address) {
      const plain = plainAddress(address);
      const family = isIP(plain);
      return family !== 0 && list.check(plain, family === 4 ? 'ipv4' : 'ipv6');
    },
  };
}

const special = parseNetworks([...special4, ...special6]);

/** Whether an address may be reached only when the settings say so. Whatever is no address counts as private. */
export function isPrivateAddress(address: string): boolean {
  const plain = plainAddress(address);
  return isIP(plain) === 0 || plain.includes('%') || special === undefined || special.has(plain);
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
