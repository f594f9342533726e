import type { EgressSecret, Surface } from './egress.ts';
import type { Header, RequestHead } from './http1.ts';
import { Refusal } from './refusal.ts';
import { hasDotSegment, matchesHost } from './rules.ts';

/** The secrets of a run as one destination sees them. */
export interface SecretsForHost {
  /** May be put in: the host is allowed and the way to it is verified TLS. */
  readonly eligible: readonly EgressSecret[];
  /** Their placeholders must not leave towards this destination. */
  readonly foreign: readonly EgressSecret[];
}

/** A request's head with the values in it. Texts hold bytes as latin-1, as the rest of a head does. */
export interface SubstitutedHead {
  readonly target: string;
  readonly headers: readonly Header[];
  /** The secrets that were put in. */
  readonly used: readonly EgressSecret[];
}

/** A head full of placeholders of a long value would become many times as large as any head that is read. */
const maxPutInBytes = 1024 * 1024;
const tooMuchPutIn = new Refusal('secret_unusable', 'The values of secrets would make the headers larger than 1 MiB.');

const basicCredentials = /^(basic[ \t]+)([A-Za-z0-9+/]+={0,2})$/i;

export function secretsForHost(secrets: readonly EgressSecret[], host: string, secure: boolean): SecretsForHost {
  const eligible = secure ? secrets.filter((secret) => allowsHost(secret, host)) : [];
  // Two secrets may share a placeholder and differ in their hosts: one that is allowed here is enough.
  const permitted = new Set(eligible.map((secret) => secret.placeholder));
  const foreign = secrets.filter((secret) => !permitted.has(secret.placeholder));
  return { eligible, foreign };
}

export const allowsHost = (secret: Pick<EgressSecret, 'allowedHosts'>, host: string): boolean =>
  secret.allowedHosts.some((pattern) => matchesHost(pattern, host));

/** Those of the secrets that are put in on a surface. */
export const secretsOn = (secrets: readonly EgressSecret[], surface: Surface): EgressSecret[] =>
  secrets.filter(({ surfaces }) => surfaces.includes(surface));

/** As it stands inside a JSON string. */
export const jsonForm = (value: string): string => JSON.stringify(value).slice(1, -1);
/** As it stands in a URL or in a form that is encoded like one. */
export const urlForm = (value: string): string => encodeURIComponent(value.toWellFormed());
const latin1Form = (value: string) => Buffer.from(value).toString('latin1');

/** Why a placeholder may not go to this host. */
export function foreignPlaceholder(secret: EgressSecret, host: string): Refusal {
  if (allowsHost(secret, host)) {
    return new Refusal(
      'placeholder_without_tls',
      `The placeholder of ${secret.name} was sent to ${host} without TLS. Secrets are put in over https only.`,
    );
  }
  return new Refusal(
    'placeholder_not_allowed',
    `The placeholder of ${secret.name} was sent to ${host}, which is not one of the hosts that it is allowed for.`,
  );
}

/** Throws `Refusal` when any part of a head carries a placeholder that must not go to `host`, encoded or not. */
export function refuseForeignInHead(head: RequestHead, foreign: readonly EgressSecret[], host: string): void {
  if (foreign.length === 0) return;
  const texts = [head.text];
  if (head.target.includes('%')) texts.push(percentDecoded(head.target));
  for (const [, value] of head.headers) {
    const match = basicCredentials.exec(value);
    if (match?.[2] !== undefined) texts.push(Buffer.from(match[2], 'base64').toString('latin1'));
  }
  const secret = foreign.find(({ placeholder }) => texts.some((text) => text.includes(placeholder)));
  if (secret) throw foreignPlaceholder(secret, host);
}

const percentDecoded = (text: string) =>
  text.replace(/%([0-9a-fA-F]{2})/g, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));

/**
 * Puts the values in on the surfaces of each secret: header values and Basic credentials (decoded and encoded again),
 * the query, the path. One pass: a value is never searched for placeholders. Only the literal placeholder counts; one
 * that the client has encoded itself leaves as it is, for it is no more than a placeholder.
 * Throws `Refusal` for a value that cannot stand where its placeholder stood.
 */
export function substituteHead(
  target: string,
  headers: readonly Header[],
  eligible: readonly EgressSecret[],
): SubstitutedHead {
  const used = new Set<EgressSecret>();
  const budget = { left: maxPutInBytes };
  const inHeaders = secretsOn(eligible, 'headers');
  const inHeader = (name: string, value: string): string => {
    const basic = basicCredentials.exec(value);
    if (basic === null) return refuseBreaks(name, putIn(value, inHeaders, latin1Form, used, budget));
    const [, scheme = '', encoded = ''] = basic;
    const credentials = Buffer.from(encoded, 'base64').toString('latin1');
    const replaced = putIn(credentials, inHeaders, latin1Form, used, budget);
    // Letters and digits alone may be base64 by chance: the header may hold the placeholder as it is.
    if (replaced === credentials) return refuseBreaks(name, putIn(value, inHeaders, latin1Form, used, budget));
    return scheme + Buffer.from(replaced, 'latin1').toString('base64');
  };
  const queryAt = target.indexOf('?') < 0 ? target.length : target.indexOf('?');
  const path = putIn(target.slice(0, queryAt), secretsOn(eligible, 'path'), urlForm, used, budget);
  if (path !== target.slice(0, queryAt) && hasDotSegment(path)) {
    throw new Refusal('secret_unusable', "A secret's value makes a segment `.` or `..`, so the path cannot carry it.");
  }
  return {
    target: path + putIn(target.slice(queryAt), secretsOn(eligible, 'query'), urlForm, used, budget),
    headers: headers.map(([name, value]): Header => [name, inHeader(name, value)]),
    used: [...used],
  };
}

/** Leftmost first, the longest placeholder where several begin at one place, as in a body. */
function putIn(
  text: string,
  secrets: readonly EgressSecret[],
  form: (value: string) => string,
  used: Set<EgressSecret>,
  budget: { left: number },
): string {
  const here = secrets.filter(({ placeholder }) => placeholder !== '' && text.includes(placeholder));
  if (here.length === 0) return text;
  let result = '';
  for (let done = 0; ; ) {
    let best: { at: number; secret: EgressSecret } | undefined;
    for (const secret of here) {
      const at = text.indexOf(secret.placeholder, done);
      if (at < 0) continue;
      const isLonger = at === best?.at && secret.placeholder.length > best.secret.placeholder.length;
      if (best === undefined || at < best.at || isLonger) best = { at, secret };
    }
    if (best === undefined) return result + text.slice(done);
    const written = form(best.secret.value);
    budget.left -= written.length;
    if (budget.left < 0) throw tooMuchPutIn;
    used.add(best.secret);
    result += text.slice(done, best.at) + written;
    done = best.at + best.secret.placeholder.length;
  }
}

function refuseBreaks(name: string, value: string): string {
  if (!/[\r\n\0]/.test(value)) return value;
  throw new Refusal('secret_unusable', `A secret's value has a line break, so the header ${name} cannot carry it.`);
}
