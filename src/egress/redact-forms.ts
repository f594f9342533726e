import type { EgressSecret } from './egress.ts';
import type { Replacement } from './replace.ts';

/** A shorter value would be found by chance in answers and garble them. */
const leastRedactedBytes = 8;

/**
 * Every spelling in which an origin may give a secret's value back, and what the sandbox is shown instead: as it is,
 * as JSON, URLs, forms and HTML write it, in hexadecimal, and in base64 wherever it begins and ends inside a longer
 * text, so that Basic credentials with any user name are among them.
 */
export function redactionsOf({ value, placeholder }: Pick<EgressSecret, 'value' | 'placeholder'>): Replacement[] {
  const bytes = Buffer.from(value);
  if (bytes.length < leastRedactedBytes) return [];
  const shown = Buffer.from(placeholder);
  const pairs = new Map<string, Replacement>();
  const add = (needle: Buffer, replacement: Buffer) => {
    const key = needle.toString('latin1');
    if (!pairs.has(key)) pairs.set(key, { needle, replacement });
  };
  for (const form of textForms(value)) add(Buffer.from(form), shown);
  for (const write of hexForms) add(Buffer.from(write(bytes)), Buffer.from(write(shown)));
  for (const [needle, replacement] of base64Forms(bytes, shown)) {
    add(Buffer.from(needle), Buffer.from(replacement));
    add(Buffer.from(urlAlphabet(needle)), Buffer.from(urlAlphabet(replacement)));
  }
  return [...pairs.values()];
}

/** Escapes differ between languages: `\/` is PHP's, `\u002B` that of .NET, `\u003c` that of Go, `\u00e9` Python's. */
function textForms(value: string): string[] {
  const json = JSON.stringify(value).slice(1, -1);
  const url = encodeURIComponent(value.toWellFormed());
  const strictUrl = url.replace(/[!'()*~]/g, percentByte);
  const hexOf = (character: string) => character.charCodeAt(0).toString(16).padStart(4, '0');
  const escaped = (text: string, which: RegExp, upper: boolean) =>
    text.replace(which, (c) => `\\u${upper ? hexOf(c).toUpperCase() : hexOf(c)}`);
  return [
    value,
    json,
    json.replaceAll('/', '\\/'),
    ...[false, true].flatMap((upper) => [
      escaped(json, /[^\0-\x7f]/g, upper),
      escaped(json, /[^\0-\x7f]/g, upper).replaceAll('/', '\\/'),
      escaped(json, /[<>&]/g, upper),
      escaped(json, /[<>&'+`]|[^\0-\x7f]/g, upper),
      escaped(JSON.stringify(value.replaceAll('"', '\u0000')).slice(1, -1), /[<>&'+`]|[^\0-\x7f]/g, upper).replaceAll(
        '\\u0000',
        '\\u0022',
      ),
    ]),
    url,
    strictUrl,
    strictUrl.replaceAll('%20', '+'),
    url.replace(/%[0-9A-F]{2}/g, (byte) => byte.toLowerCase()),
    strictUrl.replace(/%[0-9A-F]{2}/g, (byte) => byte.toLowerCase()),
    encodeURI(value.toWellFormed()),
    html(value, '&#39;', '&quot;'),
    html(value, '&#x27;', '&quot;'),
    html(value, '&#39;', '&#34;'),
    html(value, "'", '"'),
  ];
}

/** With the placeholder written in the same way, what is shown is as long as what it replaces. */
const hexForms: readonly ((bytes: Buffer) => string)[] = [
  (bytes) => bytes.toString('hex'),
  (bytes) => bytes.toString('hex').toUpperCase(),
  (bytes) => bytes.toString('hex').replace(/../g, '%$&'),
  (bytes) => bytes.toString('hex').toUpperCase().replace(/../g, '%$&'),
];

const percentByte = (character: string) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`;

const html = (value: string, apostrophe: string, quote: string) =>
  value
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll("'", apostrophe)
    .replaceAll('"', quote);

const urlAlphabet = (text: string) => text.replaceAll('+', '-').replaceAll('/', '_');

/**
 * The value inside a longer text that is base64 as a whole. A character holds 6 bits, so that the first and the last
 * one may hold bits of a neighbour as well: there is one form for each that these bits can be. What stands in its
 * place encodes the placeholder with the same neighbours, so that the whole still decodes.
 */
function base64Forms(value: Buffer, placeholder: Buffer): [needle: string, replacement: string][] {
  // Another length modulo 3 would shift the bits of everything behind it.
  const filler = (((value.length - placeholder.length) % 3) + 3) % 3;
  const shown = Buffer.concat([placeholder, Buffer.alloc(filler, '.')]);
  const forms: [string, string][] = [];
  for (const before of [0, 1, 2]) {
    const leadBits = (before * 8) % 6;
    const trailBits = (6 - (((before + value.length) * 8) % 6)) % 6;
    for (let lead = 0; lead < 1 << leadBits; lead++) {
      for (let trail = 0; trail < 1 << trailBits; trail++) {
        const encode = (bytes: Buffer) => {
          const neighbours = [Buffer.alloc(before, lead), bytes, Buffer.from([trail << (8 - trailBits)])];
          const end = Math.ceil(((before + bytes.length) * 8) / 6);
          return Buffer.concat(neighbours)
            .toString('base64')
            .slice(Math.floor((before * 8) / 6), end);
        };
        forms.push([encode(value), encode(shown)]);
      }
    }
  }
  return forms;
}
