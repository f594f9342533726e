/** Longest text of one field of an event, in UTF-16 units. The raw stream keeps all of it. */
export const maxFieldLength = 256 * 1024;

const maxSentenceLength = 300;

/** The text without lone surrogates, cut to `maxFieldLength` with a mark that says how much is missing. */
export function boundedText(text: string): string {
  if (text.length <= maxFieldLength) return text.toWellFormed();
  const head = text.slice(0, maxFieldLength).toWellFormed();
  return `${head}\n[cut: ${text.length - maxFieldLength} more characters are in the raw stream]`;
}

/** A structured value as it is where it is small enough, else the beginning of its JSON. */
export function boundedValue(value: unknown): unknown {
  const json = JSON.stringify(value ?? null);
  return json.length <= maxFieldLength ? (value ?? null) : boundedText(json);
}

/**
 * What a program says about a failure, as people may read it: no address of ours and nothing that looks like a
 * provider's key, not even one that the provider has masked in part.
 */
export function publicText(text: string): string {
  return text
    .replace(/,?\s*\burl: https?:\/\/[^\s)]+/gi, '')
    .replace(/\s*\bfor url \(https?:[^)]*\)/gi, '')
    .replace(/https?:\/\/(?:localhost|\[[0-9a-f:]+\]|\d{1,3}(?:\.\d{1,3}){3})(?::\d+)?[^\s)"']*/gi, 'the model gateway')
    .replace(/\b(?:sk|xai)-[\w*.-]+|\bAIza[\w*-]{8,}|\bAQ\.[\w*.-]{8,}/g, '[key]');
}

/** The text in one line of bounded length. */
export function sentence(text: string): string {
  const line = text.replace(/\s+/g, ' ').trim();
  return line.length <= maxSentenceLength ? line : `${line.slice(0, maxSentenceLength - 1).toWellFormed()}…`;
}
