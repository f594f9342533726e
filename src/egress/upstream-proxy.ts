import { isIP } from 'node:net';
import type { UpstreamProxies } from '../config.ts';
import { parseNetworks, plainAddress } from './addresses.ts';

/** A forward proxy between this server and the internet, as HTTPS_PROXY names it. */
export interface UpstreamProxy {
  readonly host: string;
  readonly port: number;
  /** TLS with the proxy itself, its certificate verified against `host`. */
  readonly isSecure: boolean;
  /** The value of `Proxy-Authorization`; null without credentials. */
  readonly authorization: string | null;
}

/** The URL of the proxy through which a request leaves, credentials included; null for none. */
export type ProxyUrlFor = (target: { host: string; port: number; secure: boolean }) => string | null;

const thisMachine = ['localhost', '127.0.0.0/8', '::1'];

/**
 * Which proxy a request takes. NO_PROXY is read as curl and Go read it: `*`; a name, which covers what is below it,
 * with or without a dot or `*.` in front; an address or a CIDR; each but a CIDR with a port behind it if need be. What is
 * on this machine is never asked of a proxy.
 */
export function proxyUrls(settings: UpstreamProxies): ProxyUrlFor {
  const exceptions = [...thisMachine, ...settings.noProxy].map(exceptionOf);
  return ({ host, port, secure }) => {
    const url = secure ? settings.https : settings.http;
    return url === null || exceptions.some((covers) => covers(host.toLowerCase(), port)) ? null : url;
  };
}

/** As `ProxyUrlFor`, for whoever has a URL. Null for one that is not of the web. */
export function proxyUrlOf(urlFor: ProxyUrlFor, text: string): string | null {
  const url = URL.parse(text);
  if (url === null || (url.protocol !== 'https:' && url.protocol !== 'http:')) return null;
  const secure = url.protocol === 'https:';
  const port = url.port === '' ? (secure ? 443 : 80) : Number(url.port);
  return urlFor({ host: url.hostname.replace(/^\[|\]$/g, ''), port, secure });
}

function exceptionOf(text: string): (host: string, port: number) => boolean {
  const entry = text.toLowerCase();
  if (entry === '*') return () => true;
  const networks = parseNetworks([entry]);
  if (networks !== undefined) return (host) => networks.has(host);
  const match = /^(?:\[([^\]]+)\]|(.*?))(?::(\d{1,5}))?$/.exec(isIP(entry) === 6 ? `[${entry}]` : entry);
  const name = (match?.[1] ?? match?.[2] ?? entry).replace(/^\*?\./, '');
  const only = match?.[3] === undefined ? null : Number(match[3]);
  return (host, port) => {
    if (name === '' || (only !== null && only !== port)) return false;
    if (isIP(host) !== 0) return plainAddress(host) === plainAddress(name);
    return host === name || host.endsWith(`.${name}`);
  };
}

/** As the settings have checked it. */
export function parseProxy(text: string): UpstreamProxy {
  const url = new URL(text);
  const isSecure = url.protocol === 'https:';
  const credentials = `${decodeURIComponent(url.username)}:${decodeURIComponent(url.password)}`;
  return {
    host: url.hostname.replace(/^\[|\]$/g, ''),
    port: url.port === '' ? (isSecure ? 443 : 80) : Number(url.port),
    isSecure,
    authorization: credentials === ':' ? null : `Basic ${Buffer.from(credentials, 'utf8').toString('base64')}`,
  };
}
