import { createHash, randomBytes } from 'node:crypto';

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
export const hashToken = (token: string): string => createHash('sha256').update(token).digest('hex');

/** The part of a token that may be displayed: its type's prefix and six characters. */
export const shownPrefix = (kind: TokenKind, token: string): string => token.slice(0, tokenPrefixes[kind].length + 6);

/** The kind that a token claims to be by its prefix, or undefined for a form that is none of ours. */
export function kindOfToken(token: string): TokenKind | undefined {
  for (const [kind, prefix] of Object.entries(tokenPrefixes)) {
    if (token.startsWith(prefix) && /^[A-Za-z0-9_-]{43}$/.test(token.slice(prefix.length))) return kind as TokenKind;
  }
  return undefined;
}
