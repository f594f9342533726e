import { isObject } from './meter.ts';

/** What may pass from a provider to the sandbox. `openai-organization` and such name the account: they may not. */
const passedHeaders = [
  'content-type',
  'openai-model',
  'openai-processing-ms',
  'openai-version',
  'retry-after',
  'retry-after-ms',
  'x-request-id',
  'x-should-retry',
];

/** Takes out of a text what the sandbox must not learn. */
export type Scrub = (text: string) => string;

/**
 * Removes the key wherever it stands. Answers of a provider are searched for it whole: a provider that echoes the
 * request would otherwise hand the key to the agent.
 */
export const keyScrubber = (apiKey: string): Scrub => {
  const escaped = JSON.stringify(apiKey).slice(1, -1);
  return (text) => text.replaceAll(apiKey, '[key]').replaceAll(escaped, '[key]');
};

/**
 * For a provider's error texts: removes, beside the key, what looks like a part of one ("Incorrect API key provided:
 * sk-proj-****abcd"), the names of the account's organisation and project, and the address that the request went to.
 */
export function errorScrubber(apiKey: string, upstreamUrl: string): Scrub {
  const { origin, host, hostname } = new URL(upstreamUrl);
  const scrubKey = keyScrubber(apiKey);
  return (text) => {
    let clean = scrubKey(text);
    for (const address of [origin, host, hostname]) clean = clean.replaceAll(address, '[model provider]');
    return clean
      .replace(/\bsk-[A-Za-z0-9_*.…-]*[A-Za-z0-9_*…-]/g, '[key]')
      .replace(/\b(?:org|proj)[-_][A-Za-z0-9]{6,}/g, '[account]');
  };
}

/** The headers of a provider's answer that are passed on. */
export function passedOn(headers: Headers, scrub: Scrub): Headers {
  const passed = new Headers();
  for (const name of passedHeaders) {
    const value = headers.get(name);
    if (value !== null) passed.set(name, scrub(value));
  }
  return passed;
}

/** An error in the form of OpenAI's API. `retry: false` tells the harness that asking again will not help. */
export function protocolError(
  status: number,
  code: string,
  message: string,
  detail: { param?: string; retry?: boolean } = {},
): Response {
  const type = status >= 500 ? 'server_error' : 'invalid_request_error';
  const headers = detail.retry === false ? { 'x-should-retry': 'false' } : {};
  return Response.json({ error: { message, type, param: detail.param ?? null, code } }, { status, headers });
}

/**
 * A provider's refusal as the sandbox may see it: the fields of its error, scrubbed, and nothing else of its body. A
 * body in another form (a relay's HTML page) is replaced by a sentence. A status that is no refusal becomes 502.
 */
export function passedError(answer: Response, body: string, scrub: Scrub): Response {
  const status = answer.status >= 400 ? answer.status : 502;
  const headers = passedOn(answer.headers, scrub);
  headers.delete('content-type');
  const error = errorIn(body);
  const text = (name: string): string | null => {
    const value = error[name];
    return typeof value === 'string' ? scrub(value) : null;
  };
  const message = text('message') ?? `The model provider answered with status ${answer.status}.`;
  const type = text('type') ?? (status >= 500 ? 'server_error' : 'invalid_request_error');
  return Response.json({ error: { message, type, param: text('param'), code: text('code') } }, { status, headers });
}

function errorIn(body: string): Record<string, unknown> {
  try {
    const parsed: unknown = JSON.parse(body);
    return isObject(parsed) && isObject(parsed.error) ? parsed.error : {};
  } catch {
    return {};
  }
}
