import type { EgressSecret } from './egress.ts';
import type { Header, RequestHead } from './http1.ts';
import { Refusal } from './refusal.ts';
import { type Replacement, Replacer } from './replace.ts';
import { matchesHost } from './rules.ts';

/** The secrets of a run as one destination sees them. */
export interface SecretsForHost {
  /** May be put in: the host is allowed and the way to it is verified TLS. */
  readonly eligible: readonly EgressSecret[];
  /** Their placeholders must not leave towards this destination. */
  readonly foreign: readonly EgressSecret[];
  /** What turns the values back into placeholders in the destination's answers. */
  readonly redactions: readonly Replacement[];
}

/** A request's head with the values in it. Texts hold bytes as latin-1, as the rest of a head does. */
export interface SubstitutedHead {
  readonly target: string;
  readonly headers: readonly Header[];
  /** Names of the secrets that were put in. */
  readonly used: readonly string[];
  /** Encoded forms that this request alone carries (Basic credentials), to be redacted in its answer. */
  readonly echoes: readonly Replacement[];
}

/** A shorter value would be found by chance in answers and garble them. */
const leastRedactedBytes = 8;

const basicCredentials = /^(basic[ \t]+)([A-Za-z0-9+/]+={0,2})$/i;

export function secretsForHost(secrets: readonly EgressSecret[], host: string, secure: boolean): SecretsForHost {
  const eligible = secure ? secrets.filter((secret) => allows(secret, host)) : [];
  // Two secrets may share a placeholder and differ in their hosts: one that is allowed here is enough.
  const permitted = new Set(eligible.map((secret) => secret.placeholder));
  const foreign = secrets.filter((secret) => !permitted.has(secret.placeholder));
  return { eligible, foreign, redactions: eligible.flatMap(redactionsOf) };
}

const allows = (secret: EgressSecret, host: string) =>
  secret.allowedHosts.some((pattern) => matchesHost(pattern, host));

/** A value comes back as it was sent, or as JSON or a URL would write it. */
function redactionsOf(secret: EgressSecret): Replacement[] {
  const forms = new Set([secret.value, jsonForm(secret.value), urlForm(secret.value)]);
  return [...forms]
    .map((form) => ({ needle: Buffer.from(form), replacement: Buffer.from(secret.placeholder) }))
    .filter(({ needle }) => needle.length >= leastRedactedBytes);
}

const jsonForm = (value: string) => JSON.stringify(value).slice(1, -1);
const urlForm = (value: string) => encodeURIComponent(value.toWellFormed());
const latin1Form = (value: string) => Buffer.from(value).toString('latin1');

/** Why a placeholder may not go to this host. */
export function foreignPlaceholder(secret: EgressSecret, host: string): Refusal {
  if (allows(secret, host)) {
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
 * Puts the values in: header values, Basic credentials (decoded and encoded again) and the query. The path and the
 * body stay as they are: an allowed host that publishes what it is sent would give the value away.
 * Throws `Refusal` for a value that no header can carry.
 */
export function substituteHead(
  target: string,
  headers: readonly Header[],
  eligible: readonly EgressSecret[],
): SubstitutedHead {
  const used = new Set<string>();
  const echoes: Replacement[] = [];
  const replaceIn = (text: string, form: (value: string) => string): string => {
    let result = text;
    for (const secret of eligible) {
      if (!result.includes(secret.placeholder)) continue;
      result = result.replaceAll(secret.placeholder, () => form(secret.value));
      used.add(secret.name);
    }
    return result;
  };
  const inHeader = (name: string, value: string): string => {
    const basic = basicCredentials.exec(value);
    if (basic === null) return refuseBreaks(name, replaceIn(value, latin1Form));
    const [, scheme = '', encoded = ''] = basic;
    const credentials = Buffer.from(encoded, 'base64').toString('latin1');
    const replaced = replaceIn(credentials, latin1Form);
    if (replaced === credentials) return value;
    const reencoded = Buffer.from(replaced, 'latin1').toString('base64');
    echoes.push({ needle: Buffer.from(reencoded), replacement: Buffer.from(encoded) });
    return scheme + reencoded;
  };
  const queryAt = target.indexOf('?');
  return {
    target: queryAt < 0 ? target : target.slice(0, queryAt) + replaceIn(target.slice(queryAt), urlForm),
    headers: headers.map(([name, value]): Header => [name, inHeader(name, value)]),
    used: [...used],
    echoes,
  };
}

function refuseBreaks(name: string, value: string): string {
  if (!/[\r\n\0]/.test(value)) return value;
  throw new Refusal('secret_unusable', `A secret's value has a line break, so the header ${name} cannot carry it.`);
}

/** The values of an answer's header lines as placeholders again. */
export function redactText(text: string, redactions: readonly Replacement[]): string {
  if (redactions.length === 0) return text;
  const replacer = new Replacer(redactions);
  const shown = replacer.push(Buffer.from(text, 'latin1'));
  return Buffer.concat([shown, replacer.finish()]).toString('latin1');
}
