import type { AcceptedRequest } from './rehearsal-checks.ts';
import type { Reply, ToolCall } from './rehearsal-script.ts';

export interface ResponseEvent {
  readonly type: string;
  readonly [field: string]: unknown;
}

export interface ResponseUsage {
  readonly input_tokens: number;
  readonly input_tokens_details: { readonly cached_tokens: number };
  readonly output_tokens: number;
  readonly output_tokens_details: { readonly reasoning_tokens: number };
  readonly total_tokens: number;
}

/** A response as the Responses API streams it, and the object that its last event holds. */
export interface ComposedResponse {
  readonly events: readonly ResponseEvent[];
  readonly response: Readonly<Record<string, unknown>>;
}

type Push = (type: string, fields: Record<string, unknown>) => void;
type Item = Readonly<Record<string, unknown>>;

/** About four characters make a token; good enough to be plausible, and the same for the same text. */
export const tokensOf = (text: string): number => Math.ceil(text.length / 4);

/**
 * Composes the whole sequence of events, from `response.created` to the last. A reply that is larger than the
 * request's cap ends as `response.incomplete`, as it would at OpenAI, with its text cut and without its tool calls.
 */
export function composeResponse(
  request: AcceptedRequest,
  reply: Reply,
  cachedTokens: number,
  createdAtMs: number,
): ComposedResponse {
  const suffix = crypto.randomUUID().replaceAll('-', '');
  const { text, calls, incomplete, outputTokens, reasoningTokens } = fit(request, reply);
  const events: ResponseEvent[] = [];
  const push: Push = (type, fields) => events.push({ type, sequence_number: events.length, ...fields });
  const base = {
    id: `resp_${suffix}`,
    object: 'response',
    created_at: Math.floor(createdAtMs / 1000),
    status: 'in_progress',
    error: null,
    incomplete_details: null,
    max_output_tokens: request.maxOutputTokens,
    model: request.model,
    output: [] as Item[],
    prompt_cache_key: request.cacheKey,
    usage: null as ResponseUsage | null,
  };
  push('response.created', { response: base });
  push('response.in_progress', { response: base });

  const output: Item[] = [];
  if (reply.reasoning !== null) output.push(pushReasoning(push, output.length, `rs_${suffix}`, reply.reasoning));
  if (text !== null) output.push(pushMessage(push, output.length, `msg_${suffix}`, text, incomplete));
  for (const [index, call] of calls.entries()) output.push(pushCall(push, output.length, `${suffix}${index}`, call));

  const inputTokens = tokensOf(request.promptText);
  const usage: ResponseUsage = {
    input_tokens: inputTokens,
    input_tokens_details: { cached_tokens: Math.min(cachedTokens, inputTokens) },
    output_tokens: outputTokens,
    output_tokens_details: { reasoning_tokens: reasoningTokens },
    total_tokens: inputTokens + outputTokens,
  };
  const failed = reply.fault?.kind === 'failed' ? reply.fault.code : null;
  const response = {
    ...base,
    status: failed !== null ? 'failed' : incomplete ? 'incomplete' : 'completed',
    error: failed === null ? null : { code: failed, message: 'The rehearsal was told to fail here.' },
    incomplete_details: incomplete ? { reason: 'max_output_tokens' } : null,
    output,
    usage: failed === null ? usage : null,
  };
  push(`response.${response.status}`, { response });
  return { events, response };
}

/** What of the reply fits under the cap of the request's output. */
function fit(request: AcceptedRequest, reply: Reply) {
  const reasoningTokens = tokensOf(reply.reasoning ?? '');
  const callTokens = reply.calls.reduce(
    (sum, call) => sum + tokensOf(call.kind === 'function' ? call.arguments : call.input),
    0,
  );
  const wanted = reasoningTokens + callTokens + tokensOf(reply.text ?? '');
  const most = request.maxOutputTokens ?? Number.POSITIVE_INFINITY;
  if (wanted <= most && reply.fault?.kind !== 'incomplete') {
    return { text: reply.text, calls: reply.calls, incomplete: false, outputTokens: wanted, reasoningTokens };
  }
  const outputTokens = Math.min(wanted, most);
  const text = (reply.text ?? '').slice(0, Math.max(0, outputTokens - reasoningTokens) * 4);
  return { text, calls: [], incomplete: true, outputTokens, reasoningTokens: Math.min(reasoningTokens, outputTokens) };
}

function pushReasoning(push: Push, index: number, id: string, text: string): Item {
  const at = { item_id: id, output_index: index, summary_index: 0 };
  const item = {
    id,
    type: 'reasoning',
    summary: [{ type: 'summary_text', text }],
    encrypted_content: btoa('rehearsal'),
  };
  push('response.output_item.added', { output_index: index, item: { ...item, summary: [] } });
  push('response.reasoning_summary_part.added', { ...at, part: { type: 'summary_text', text: '' } });
  push('response.reasoning_summary_text.delta', { ...at, delta: text });
  push('response.reasoning_summary_text.done', { ...at, text });
  push('response.reasoning_summary_part.done', { ...at, part: { type: 'summary_text', text } });
  push('response.output_item.done', { output_index: index, item });
  return item;
}

function pushMessage(push: Push, index: number, id: string, text: string, incomplete: boolean): Item {
  const at = { item_id: id, output_index: index, content_index: 0 };
  const part = { type: 'output_text', text, annotations: [], logprobs: [] };
  const item = {
    id,
    type: 'message',
    role: 'assistant',
    status: incomplete ? 'incomplete' : 'completed',
    content: [part],
  };
  push('response.output_item.added', { output_index: index, item: { ...item, status: 'in_progress', content: [] } });
  push('response.content_part.added', { ...at, part: { ...part, text: '' } });
  // A word at a time, as a model writes.
  for (const word of text.split(/(?<=\s)/)) push('response.output_text.delta', { ...at, delta: word, logprobs: [] });
  push('response.output_text.done', { ...at, text, logprobs: [] });
  push('response.content_part.done', { ...at, part });
  push('response.output_item.done', { output_index: index, item });
  return item;
}

function pushCall(push: Push, index: number, suffix: string, call: ToolCall): Item {
  const common = { status: 'completed', call_id: `call_${suffix}`, name: call.name };
  const [item, field, event] =
    call.kind === 'function'
      ? [
          { id: `fc_${suffix}`, type: 'function_call', ...common, arguments: call.arguments },
          'arguments',
          'response.function_call_arguments',
        ]
      : [
          { id: `ctc_${suffix}`, type: 'custom_tool_call', ...common, input: call.input },
          'input',
          'response.custom_tool_call_input',
        ];
  const whole = call.kind === 'function' ? call.arguments : call.input;
  const at = { item_id: item.id, output_index: index };
  push('response.output_item.added', { output_index: index, item: { ...item, [field]: '', status: 'in_progress' } });
  for (const delta of whole.match(/.{1,40}/gsu) ?? []) push(`${event}.delta`, { ...at, delta });
  push(`${event}.done`, { ...at, [field]: whole });
  push('response.output_item.done', { output_index: index, item });
  return item;
}
