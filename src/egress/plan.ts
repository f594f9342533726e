import type { Passage } from './carried.ts';
import { codingsOf, refuseUnsearchable } from './coded.ts';
import { BadMessage, type Framing, type Header, type RequestHead, requestFraming, valuesOf, wordsOf } from './http1.ts';
import { type BodyForm, bodyFormOf } from './payload.ts';
import { askSearchable, needlesFor } from './redact.ts';
import { Refusal } from './refusal.ts';
import { type Access, type Authority, authorityText, hasDotSegment, parseAuthority } from './rules.ts';
import { refuseForeignInHead, substituteHead } from './substitute.ts';
import { readsMessages, withoutExtensions } from './websocket-offer.ts';

/** What a CONNECT has fixed for every request inside it. */
export interface Tunnel {
  readonly authority: Authority;
  readonly secure: boolean;
}

/** Where one request goes, in origin form. */
export interface Destination extends Tunnel {
  readonly target: string;
}

/** All that is needed to carry one request out. */
export interface Plan extends Tunnel {
  readonly method: string;
  /** The head for the origin, values put in, with a body that ends as `framing` says. */
  headWith(framing: Framing): Buffer;
  /** As the client frames its body. */
  readonly framing: Framing;
  /** The client waits for `100 Continue` before it sends its body. */
  readonly awaitsContinue: boolean;
  readonly isUpgrade: boolean;
  /** Safe to send again when a kept-alive connection turns out to be dead. */
  readonly isRepeatable: boolean;
  /** The client can read chunks and keeps the connection. */
  readonly keepsAlive: boolean;
  readonly clientReadsChunks: boolean;
  /** How values are written into the body. */
  readonly bodyForm: BodyForm;
  /** What must be undone to read the body; one that is not empty keeps values from being put in. */
  readonly codings: readonly string[];
  /** The secrets that may go, now and later, and who is told of those that went. */
  readonly passage: Passage;
}

const usualPort = (secure: boolean) => (secure ? 443 : 80);

/** Headers that speak about one connection, and those that the plan writes itself. */
const notForwarded = new Set([
  'connection',
  'content-length',
  'expect',
  'host',
  'http2-settings',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'transfer-encoding',
  'upgrade',
]);

/** Reads where a request goes. Throws `Refusal` where target, Host and tunnel do not agree. */
export function locate(head: RequestHead, tunnel: Tunnel | null, access: Access): Destination {
  if (head.method === 'CONNECT' || head.method === 'TRACE') {
    throw new Refusal('method_not_allowed', `${head.method} is not possible here.`);
  }
  const destination = tunnel === null ? absoluteDestination(head) : tunnelDestination(head, tunnel);
  const { authority, secure } = destination;
  if (!access.portOpen(authority.host, authority.port)) throw closedPort(authority);
  const [host, ...others] = valuesOf(head.headers, 'host');
  if (others.length > 0 || (host === undefined && head.version === '1.1')) {
    throw new BadMessage('exactly one Host header is needed');
  }
  const named = host === undefined ? authority : parseAuthority(host, usualPort(secure));
  if (named?.host !== authority.host || named.port !== authority.port) {
    throw new Refusal(
      'authority_mismatch',
      `The Host header does not name ${authorityText(authority, usualPort(secure))}.`,
    );
  }
  return destination;
}

export const closedPort = ({ port }: Authority) =>
  new Refusal(
    'port_not_allowed',
    `Port ${port} is closed: 80 and 443 are open, others where SLIPWAY_EGRESS_ALLOW_PRIVATE names host:port.`,
  );

function tunnelDestination(head: RequestHead, tunnel: Tunnel): Destination {
  if (head.target.startsWith('/') || (head.target === '*' && head.method === 'OPTIONS')) {
    refuseUnclear(head.target);
    return { ...tunnel, target: head.target };
  }
  const absolute = parseAbsolute(head.target);
  if (absolute === undefined) throw new BadMessage('the request target is neither a path nor an address');
  const { authority, secure } = tunnel;
  if (
    absolute.secure !== secure ||
    absolute.authority.host !== authority.host ||
    absolute.authority.port !== authority.port
  ) {
    throw new Refusal('authority_mismatch', `The request names another host than the tunnel to ${authority.host}.`);
  }
  return absolute;
}

function absoluteDestination(head: RequestHead): Destination {
  const absolute = parseAbsolute(head.target);
  if (absolute === undefined || absolute.secure) {
    throw new BadMessage('this is a proxy, so the target must be an http:// address, or the method CONNECT');
  }
  return absolute;
}

function parseAbsolute(target: string): Destination | undefined {
  const match = /^(https?):\/\/([^/?#]*)(.*)$/i.exec(target);
  const secure = match?.[1]?.toLowerCase() === 'https';
  const authority = parseAuthority(match?.[2] ?? '', usualPort(secure));
  if (!match || authority === undefined) return undefined;
  const rest = match[3] ?? '';
  refuseUnclear(rest);
  return { authority, secure, target: rest.startsWith('/') ? rest : `/${rest}` };
}

function refuseUnclear(target: string): void {
  if (target.includes('#')) throw new BadMessage('the request target has a fragment');
  const [path = ''] = target.split('?', 1);
  if (hasDotSegment(path)) throw new BadMessage('the path has a segment `.` or `..`');
}

/**
 * Decides how a request leaves: rules on placeholders, substitution, framing, headers of one hop removed.
 * Throws `Refusal` and `BadMessage`.
 */
export function planRequest(head: RequestHead, destination: Destination, passage: Passage): Plan {
  const { authority, secure } = destination;
  const framing = requestFraming(head);
  const secrets = passage.secrets();
  const codings = codingsOf(head.headers);
  if (framing.kind !== 'none' && secrets.foreign.length > 0) refuseUnsearchable(codings);
  refuseForeignInHead(head, secrets.foreign, authority.host);
  const expectations = wordsOf(head.headers, 'expect');
  if (expectations.some((word) => word !== '100-continue')) {
    throw new Refusal('expectation_failed', 'The only expectation that is understood is 100-continue.');
  }
  const connection = wordsOf(head.headers, 'connection');
  const isUpgrade =
    framing.kind === 'none' &&
    connection.includes('upgrade') &&
    wordsOf(head.headers, 'upgrade').join() === 'websocket';
  const forwarded = head.headers.filter(([name]) => {
    const lower = name.toLowerCase();
    return !notForwarded.has(lower) && !connection.includes(lower);
  });
  const substituted = substituteHead(destination.target, forwarded, secrets.eligible);
  for (const secret of substituted.used) passage.put(secret);
  const isSearched = needlesFor(secrets, authority.host) !== null;
  const asked = isSearched ? askSearchable(substituted.headers) : substituted.headers;
  const before: Header[] = [
    ['Host', authorityText(authority, usualPort(secure))],
    ...(isUpgrade && readsMessages(secrets) ? withoutExtensions(asked) : asked),
  ];
  const headWith = (sent: Framing) => {
    const headers = [...before, ...framingHeaders(head, sent), ...(isUpgrade ? upgradeHeaders : [])];
    const lines = headers.map(([name, value]) => `${name}: ${value}\r\n`).join('');
    return Buffer.from(`${head.method} ${substituted.target} HTTP/1.1\r\n${lines}\r\n`, 'latin1');
  };
  return {
    authority,
    secure,
    method: head.method,
    headWith,
    framing,
    awaitsContinue: expectations.length > 0 && framing.kind !== 'none',
    isUpgrade,
    isRepeatable: framing.kind === 'none' && ['GET', 'HEAD', 'OPTIONS'].includes(head.method),
    keepsAlive: head.version === '1.1' && !connection.includes('close'),
    clientReadsChunks: head.version === '1.1',
    bodyForm: bodyFormOf(head.headers),
    codings,
    passage,
  };
}

const upgradeHeaders: readonly Header[] = [
  ['Connection', 'Upgrade'],
  ['Upgrade', 'websocket'],
];

function framingHeaders(head: RequestHead, framing: Framing): Header[] {
  if (framing.kind === 'chunked') return [['Transfer-Encoding', 'chunked']];
  if (framing.kind === 'length') return [['Content-Length', String(framing.length)]];
  // An empty body is said to be empty as the client has said it.
  return valuesOf(head.headers, 'content-length').map((length): Header => ['Content-Length', length]);
}
