import { randomBytes } from 'node:crypto';

/** A new identifier: UUID version 7, so that ids sort by the time they were made. */
export const newId = (): string => Bun.randomUUIDv7();

/** The prefixes of the tokens that Slipway issues; each is followed by 43 base64url characters (32 random bytes). */
export const tokenPrefixes = {
  workspace: 'slk_',
  management: 'sl_management_',
  ingest: 'sl_public_',
  pat: 'service_pat_',
} as const;
export type TokenKind = keyof typeof tokenPrefixes;

/** A new token in plain text. It is shown once and never stored: keep `hashToken` of it. */
export const mintToken = (kind: TokenKind): string => tokenPrefixes[kind] + randomBytes(32).toString('base64url');

/** SHA-256 of a token in hex: what the database holds. */
export const hashToken = (token: string): string => Bun.SHA256.hash(token, 'hex');

/** The part of a token that may be displayed: its type's prefix and six characters. */
export const shownPrefix = (kind: TokenKind, token: string): string => token.slice(0, tokenPrefixes[kind].length + 6);

/** The kind that a token claims to be by its prefix, or undefined for a form that is none of ours. */
export function kindOfToken(token: string): TokenKind | undefined {
  for (const [kind, prefix] of Object.entries(tokenPrefixes)) {
    if (token.startsWith(prefix) && /^[A-Za-z0-9_-]{43}$/.test(token.slice(prefix.length))) return kind as TokenKind;
  }
  return undefined;
}

const base62 = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';

/** So many random characters of 0-9, A-Z and a-z, each equally likely. */
export function randomBase62(length: number): string {
  let text = '';
  while (text.length < length) {
    for (const byte of randomBytes(length - text.length)) {
      // 248 is the largest multiple of 62 in a byte: what lies above would favour the first characters.
      if (byte < 248) text += base62[byte % 62];
    }
  }
  return text;
}

/** Bytes as so many base62 characters: the same bytes give the same text. Used where randomness must not be stored. */
export function toBase62(bytes: Uint8Array, length: number): string {
  let rest = BigInt(`0x${Buffer.from(bytes).toString('hex')}`);
  let text = '';
  for (let place = 0; place < length; place++) {
    text += base62[Number(rest % 62n)];
    rest /= 62n;
  }
  return text;
}
