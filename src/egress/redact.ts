import type { Header } from './http1.ts';
import { redactionsOf } from './redact-forms.ts';
import { Needles, Redactor } from './redact-search.ts';
import type { Replacement } from './replace.ts';
import { allowsHost, type SecretsForHost } from './substitute.ts';

/** Made once per host and set of secrets: the tables take longer to make than an answer takes to be searched. */
const known = new WeakMap<SecretsForHost, Needles | null>();

/**
 * What turns the values of secrets back into placeholders in a host's answers; null for a host that no secret is
 * allowed for, whose answers pass unseen. Without TLS too: the host may have been sent the value over TLS before.
 */
export function needlesFor(secrets: SecretsForHost, host: string): Needles | null {
  const found = known.get(secrets);
  if (found !== undefined) return found;
  const own = [...secrets.eligible, ...secrets.foreign.filter((secret) => allowsHost(secret, host))];
  const pairs: readonly Replacement[] = own.flatMap(redactionsOf);
  const needles = pairs.length === 0 ? null : new Needles(pairs);
  known.set(secrets, needles);
  return needles;
}

/** A text of bytes as latin-1 (a head, a trailer) without the values. */
export function redactText(text: string, needles: Needles | null): string {
  return needles === null ? text : redactBytes(Buffer.from(text, 'latin1'), needles).toString('latin1');
}

export function redactBytes(bytes: Buffer, needles: Needles): Buffer {
  const redactor = new Redactor(needles);
  return Buffer.concat([redactor.push(bytes), redactor.finish()]);
}

/** A body that may have been changed has another sum, and a reader that checks it would refuse it. */
const sums: readonly string[] = ['content-md5', 'content-digest', 'digest', 'repr-digest'];

/** Headers, or trailers, without the sums of a body that was searched. */
export const withoutSums = (headers: readonly Header[]): Header[] =>
  headers.filter(([name]) => !sums.includes(name.toLowerCase()));

/**
 * The headers of an answer whose coding was taken off. A strong ETag names the very bytes, which the reader is not
 * given, so it becomes weak; a Content-Length would be that of the packed body.
 */
export const withoutCoding = (headers: readonly Header[]): Header[] =>
  headers
    .filter(([name]) => !['content-encoding', 'content-length'].includes(name.toLowerCase()))
    .map(
      ([name, value]): Header => [name, name.toLowerCase() === 'etag' && value.startsWith('"') ? `W/${value}` : value],
    );

/** What a request asks of a host that is searched: an answer that is not packed, and whole. */
export function askSearchable(headers: readonly Header[]): Header[] {
  // A value that is cut in two by ranges could be found in neither, and a server may always send the whole.
  const unwanted: readonly string[] = ['accept-encoding', 'range', 'if-range'];
  return [...headers.filter(([name]) => !unwanted.includes(name.toLowerCase())), ['Accept-Encoding', 'identity']];
}
