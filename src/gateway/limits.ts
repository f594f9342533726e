import type { GatewayRun } from './gateway.ts';
import { isObject } from './meter.ts';

/** The largest request body of a harness, in bytes. */
export const maxRequestBytes = 32 * 1024 * 1024;

/** A request as it may leave, or why it may not. */
export type Capped =
  | { readonly ok: true; readonly body: string }
  | {
      readonly ok: false;
      readonly status: number;
      readonly code: string;
      readonly message: string;
      readonly param?: string;
    };

/**
 * Fields that do not leave: those that name a person, a session or an installation to the provider (codex sends all of
 * its ids as `client_metadata`), and the tier, for the price data knows only the usual one.
 */
const dropped = new Set(['client_metadata', 'metadata', 'safety_identifier', 'user', 'service_tier']);

/** Tools that the provider runs: they reach the internet past the egress proxy, or cost more than their tokens. */
const hostedTool = /^(?:mcp|web_search|file_search|code_interpreter|image_generation)/;

/**
 * Puts the run's limits on the body of a Responses request: the model is the run's, the output is capped (codex never
 * asks for a cap), the cache key is ours, and what only means something to an account is taken out. Refused is what
 * would let the agent reach the internet through the provider, or spend what nobody could count.
 */
export function capResponsesRequest(text: string, run: GatewayRun, cacheKey: string): Capped {
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch {
    return refused('invalid_json', 'The request body is not valid JSON.');
  }
  if (!isObject(body)) return refused('invalid_json', 'The request body must be a JSON object.');
  if (body.background === true) {
    return refused('unsupported_parameter', 'Background responses are not available here.', 'background');
  }
  const hosted = hostedToolIn(body);
  if (hosted !== null) return refused('unsupported_tool', `Tools of type ${hosted} are not available here.`, 'tools');
  if (namesRemoteFile(body.input)) {
    return refused('unsupported_input', 'Files and images must be in the request as data: URLs.', 'input');
  }
  const kept = Object.fromEntries(Object.entries(body).filter(([name]) => !dropped.has(name)));
  const asked = body.max_output_tokens;
  const most = run.maxOutputTokensPerRequest;
  const capped = {
    ...kept,
    model: run.model,
    max_output_tokens: typeof asked === 'number' && asked > 0 ? Math.min(Math.floor(asked), most) : most,
    prompt_cache_key: cacheKey,
  };
  return { ok: true, body: JSON.stringify(capped) };
}

const refused = (code: string, message: string, param?: string): Capped => ({
  ok: false,
  status: 400,
  code,
  message,
  ...(param === undefined ? {} : { param }),
});

/** The type of the first tool that the provider itself would run. Some models take their tools inside `input`. */
function hostedToolIn(body: Record<string, unknown>): string | null {
  const input = Array.isArray(body.input) ? body.input : [];
  for (const holder of [body, ...input]) {
    if (!isObject(holder) || !Array.isArray(holder.tools)) continue;
    for (const tool of holder.tools) {
      if (!isObject(tool)) continue;
      if (typeof tool.type === 'string' && isHosted(tool.type, tool.environment)) return tool.type.slice(0, 40);
      const inner = hostedToolIn(tool);
      if (inner !== null) return inner;
    }
  }
  return null;
}

/** A shell tool is the harness's own unless it asks for a container at the provider. */
const isHosted = (type: string, environment: unknown): boolean =>
  hostedTool.test(type) || (type === 'shell' && isObject(environment) && environment.type !== 'local');

function namesRemoteFile(value: unknown): boolean {
  if (Array.isArray(value)) return value.some(namesRemoteFile);
  if (!isObject(value)) return false;
  return Object.entries(value).some(([name, inner]) =>
    (name === 'image_url' || name === 'file_url') && typeof inner === 'string'
      ? !inner.startsWith('data:')
      : namesRemoteFile(inner),
  );
}

/**
 * The bytes of a body as text, or null when there are more than `limit`. Throws when the sender goes away, or when
 * `signal` is aborted: a sender that stops in the middle must not hold up the session's end.
 */
export async function readText(
  body: ReadableStream<Uint8Array> | null,
  limit: number,
  signal?: AbortSignal,
): Promise<string | null> {
  if (body === null) return '';
  const decoder = new TextDecoder();
  const reader = body.getReader();
  const stop = () => void reader.cancel().catch(() => {});
  signal?.addEventListener('abort', stop, { once: true });
  try {
    let text = '';
    let size = 0;
    for (;;) {
      const piece = await reader.read();
      signal?.throwIfAborted();
      if (piece.done) return text + decoder.decode();
      size += piece.value.byteLength;
      if (size > limit) {
        stop();
        return null;
      }
      text += decoder.decode(piece.value, { stream: true });
    }
  } finally {
    signal?.removeEventListener('abort', stop);
  }
}
