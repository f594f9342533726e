import { BlockList, isIP } from 'node:net';

/** The address of a repository, checked and in the one form in which it is stored and compared. */
export interface RepositoryUrl {
  readonly cloneUrl: string;
  readonly scheme: 'https' | 'http' | 'file';
  /** Host without port, as certificates and allow-lists name it; empty for `file`. */
  readonly host: string;
  /** `https://host:port`, without a path; empty for `file`. */
  readonly origin: string;
  /** `owner/name` where the path has just these two parts, else its last part. */
  readonly fullName: string;
}

/** The address cannot be used. `message` is a sentence that says what to give instead; it repeats nothing of the URL. */
export class UnusableUrl extends Error {
  override readonly name = 'UnusableUrl';
}

/**
 * Reads the URL of a repository: `https://`, or `file://` for a path on this machine. Plain `http://` is only for hosts
 * that `allowsPlainHttp` names. Throws `UnusableUrl`.
 */
export function readRepositoryUrl(text: string, allowsPlainHttp: (host: string) => boolean): RepositoryUrl {
  const url = URL.parse(text.trim());
  if (!url || !/^(?:https?|file):\/\//i.test(text.trim())) {
    throw new UnusableUrl('Use the https:// address of the repository, or file:// for a path on this machine.');
  }
  if (url.username !== '' || url.password !== '') {
    throw new UnusableUrl('Leave the credential out of the URL and give the token with --token-stdin.');
  }
  if (url.search !== '' || url.hash !== '') throw new UnusableUrl('Leave out what follows ? or # in the URL.');
  const parts = partsOf(url.pathname);
  const last = parts.at(-1);
  if (last === undefined) throw new UnusableUrl('The URL names no repository: its path is missing.');

  if (url.protocol === 'file:') {
    // Percent signs stay as they are given: git decodes them itself.
    if (url.host !== '')
      throw new UnusableUrl('Write file:// followed by an absolute path, as in file:///srv/demo.git.');
    return { cloneUrl: `file://${trimEnd(url.pathname)}`, scheme: 'file', host: '', origin: '', fullName: last };
  }
  const host = url.hostname.replace(/^\[|\]$/g, '');
  if (url.protocol === 'http:' && !allowsPlainHttp(host)) {
    throw new UnusableUrl('Plain http:// would send the token unprotected: use the https:// address.');
  }
  return {
    cloneUrl: `${url.origin}${trimEnd(url.pathname)}`,
    scheme: url.protocol === 'http:' ? 'http' : 'https',
    host,
    origin: url.origin,
    fullName: parts.length === 2 ? parts.join('/') : last,
  };
}

/** A path's parts in plain text, without git's own endings: `/srv/demo/.git` and `/srv/demo.git` are both `demo`. */
function partsOf(pathname: string): string[] {
  const plain = decoded(pathname);
  if (/\p{Cc}/u.test(plain)) throw new UnusableUrl('The URL holds control characters.');
  const parts = plain.split('/').filter((part) => part !== '');
  if (parts.length > 1 && parts.at(-1) === '.git') parts.pop();
  const last = parts.at(-1)?.replace(/\.git$/, '');
  return last === undefined || last === '' ? [] : [...parts.slice(0, -1), last];
}

function decoded(pathname: string): string {
  try {
    return decodeURIComponent(pathname);
  } catch {
    throw new UnusableUrl('The URL has a % that is not followed by two hexadecimal digits.');
  }
}

const trimEnd = (pathname: string): string => pathname.replace(/\/+$/, '');

/**
 * The hosts for which plain `http://` will do: those of the entries of SLIPWAY_EGRESS_ALLOW_PRIVATE (hosts with or
 * without a port, addresses, CIDRs) that are this machine itself, where nobody listens in.
 */
export function plainHttpHosts(allowPrivate: readonly string[]): (host: string) => boolean {
  const names = new Set<string>();
  const networks = new BlockList();
  for (const entry of allowPrivate) {
    const [address = '', bits] = entry.split('/');
    const family = isIP(address);
    if (family !== 0 && bits !== undefined) networks.addSubnet(address, Number(bits), family === 4 ? 'ipv4' : 'ipv6');
    else names.add(family === 6 ? entry : entry.replace(/:\d+$/, '').replace(/^\[|\]$/g, ''));
  }
  const isListed = (host: string) => {
    const family = isIP(host);
    return names.has(host) || (family !== 0 && networks.check(host, family === 4 ? 'ipv4' : 'ipv6'));
  };
  return (host) => isLoopback(host) && isListed(host);
}

const isLoopback = (host: string): boolean =>
  host === 'localhost' || host === '::1' || (isIP(host) === 4 && host.startsWith('127.'));
