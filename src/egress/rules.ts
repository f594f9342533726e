import { isIP } from 'node:net';
import { ConfigError } from '../config.ts';
import { isPrivateAddress, parseNetworks, plainAddress } from './addresses.ts';
import type { HostPolicy } from './egress.ts';
import { Refusal } from './refusal.ts';

/** Where a request goes: `host` is normalised, without brackets. */
export interface Authority {
  readonly host: string;
  readonly port: number;
}

/** What the settings open beyond public addresses on the ports 80 and 443. */
export interface Access {
  portOpen(host: string, port: number): boolean;
  addressOpen(authority: Authority, address: string): boolean;
}

const usualPorts: readonly number[] = [80, 443];
const hostName = /^(?=.{1,253}$)[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?)*$/;

/** Lower case, without the brackets of an IPv6 address and without one trailing dot; undefined for what is no host. */
export function normalHost(text: string): string | undefined {
  const lower = text.toLowerCase();
  if (lower.startsWith('[')) {
    const address = lower.endsWith(']') ? lower.slice(1, -1) : '';
    return isIP(address) === 6 && !address.includes('%') ? address : undefined;
  }
  const host = lower.endsWith('.') ? lower.slice(0, -1) : lower;
  return hostName.test(host) ? host : undefined;
}

/** Reads `host`, `host:port` or `[address]:port`; a port that is not named is `usualPort`. */
export function parseAuthority(text: string, usualPort: number | null): Authority | undefined {
  const match = /^(\[[^\]]*\]|[^:[\]]+)(?::(\d{1,5}))?$/.exec(text);
  const host = match?.[1] === undefined ? undefined : normalHost(match[1]);
  const port = match?.[2] === undefined ? usualPort : Number(match[2]);
  if (host === undefined || port === null || port < 1 || port > 65_535) return undefined;
  return { host, port };
}

/** As a URL shows it: brackets around IPv6, the port only where it is not the usual one. */
export function authorityText(authority: Authority, usualPort: number): string {
  const host = isIP(authority.host) === 6 ? `[${authority.host}]` : authority.host;
  return authority.port === usualPort ? host : `${host}:${authority.port}`;
}

/** `*.example.com` covers any depth below, never the apex; an address is only ever matched exactly. */
export function matchesHost(pattern: string, host: string): boolean {
  if (!pattern.startsWith('*.')) return pattern === host || (pattern.includes(':') && sameAddress(pattern, host));
  return host.length > pattern.length - 1 && host.endsWith(pattern.slice(1)) && isIP(host) === 0;
}

/**
 * Whether a path has a segment `.` or `..`, percent-encoded, between encoded or backward slashes, or before a
 * parameter: readers disagree on what such a path names.
 */
export function hasDotSegment(path: string): boolean {
  if (!path.includes('.') && !/%2e/i.test(path)) return false;
  return /(?:^|[/\\]|%2f|%5c)(?:\.|%2e){1,2}(?=$|[/\\;]|%2f|%5c|%3b)/i.test(path);
}

/** IPv6 has many spellings: `::1` and `0:0::1` are one address. */
function sameAddress(pattern: string, host: string): boolean {
  const address = pattern.replace(/^\[|\]$/g, '');
  if (isIP(address) !== 6 || isIP(host) === 0 || address.includes('%')) return false;
  return parseNetworks([`${address}/128`])?.has(host) === true || plainAddress(address) === host;
}

/** The first of the policies that does not let a host be reached. */
export function denyingPolicy(policies: readonly HostPolicy[], host: string): HostPolicy | undefined {
  return policies.find(
    (policy) => policy.hosts.some((pattern) => matchesHost(pattern, host)) === (policy.default === 'allow'),
  );
}

/** What a request is told that a policy has stopped. */
export function deniedHost(host: string, policy: HostPolicy): Refusal {
  const owner = policy.name ?? 'this run';
  const why =
    policy.default === 'deny'
      ? `not in the list of allowed hosts of ${owner}`
      : `in the list of denied hosts of ${owner}`;
  return new Refusal('host_not_allowed', `${host} is ${why}.`);
}

interface HostEntry {
  readonly pattern: string;
  /** Null opens the usual ports. */
  readonly port: number | null;
}

/**
 * Reads the entries of SLIPWAY_EGRESS_ALLOW_PRIVATE:
 *  - `host` (or `*.host`): its name may resolve to private addresses, on the ports 80 and 443;
 *  - `host:port`: it may be reached on that port, private or not, and its private addresses on that port alone;
 *  - an address or a CIDR: any name may resolve to it, on the ports 80 and 443.
 * Throws `ConfigError` that names the entry.
 */
export function parseAllowPrivate(entries: readonly string[]): Access {
  const hosts: HostEntry[] = [];
  const cidrs: string[] = [];
  for (const entry of entries) {
    const cidr = cidrOf(entry);
    if (cidr !== undefined) cidrs.push(cidr);
    else hosts.push(parseHostEntry(entry));
  }
  const networks = parseNetworks(cidrs);
  if (networks === undefined) throw badEntry(cidrs.find((cidr) => !parseNetworks([cidr])) ?? '');
  const covers = (entry: HostEntry, { host, port }: Authority) =>
    matchesHost(entry.pattern, host) && (entry.port === null ? usualPorts.includes(port) : entry.port === port);
  return {
    portOpen: (host, port) =>
      usualPorts.includes(port) || hosts.some((entry) => entry.port !== null && covers(entry, { host, port })),
    addressOpen: (authority, address) =>
      !isPrivateAddress(address) ||
      hosts.some((entry) => covers(entry, authority)) ||
      (usualPorts.includes(authority.port) && networks.has(address)),
  };
}

function cidrOf(entry: string): string | undefined {
  if (entry.includes('/')) return entry;
  const family = isIP(entry);
  if (family === 0) return undefined;
  return `${entry}/${family === 4 ? 32 : 128}`;
}

function parseHostEntry(entry: string): HostEntry {
  const wildcard = entry.startsWith('*.');
  const text = wildcard ? entry.slice(2) : entry;
  const withPort = parseAuthority(text, null);
  const host = (withPort ?? parseAuthority(text, 443))?.host;
  if (host === undefined || (wildcard && isIP(host) !== 0)) throw badEntry(entry);
  return { pattern: wildcard ? `*.${host}` : host, port: withPort?.port ?? null };
}

const badEntry = (entry: string) =>
  new ConfigError(
    `SLIPWAY_EGRESS_ALLOW_PRIVATE holds "${entry}", which is none of host, host:port, address or CIDR (10.0.0.0/8).`,
  );
