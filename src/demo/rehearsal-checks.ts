import { z } from 'zod';
import type { ConversationItem, OfferedTool } from './rehearsal-script.ts';

/** A refusal in the form and with the codes of OpenAI's API. */
export interface Refusal {
  readonly status: number;
  readonly message: string;
  readonly param: string | null;
  readonly code: string | null;
}

/** A request that OpenAI would accept, as the rehearsal needs it. */
export interface AcceptedRequest {
  readonly model: string;
  readonly stream: boolean;
  readonly maxOutputTokens: number | null;
  readonly cacheKey: string | null;
  readonly items: readonly ConversationItem[];
  readonly tools: readonly OfferedTool[];
  /** The text that the model reads, from which the tokens are counted. */
  readonly promptText: string;
}

const content = z.union([z.string(), z.array(z.looseObject({ type: z.string() }))]);
const id = z.string().optional();

/** The kinds of input that a coding harness sends. Anything else is malformed, as it is for OpenAI. */
const InputItem = z.discriminatedUnion('type', [
  z.object({ type: z.literal('message'), id, role: z.enum(['user', 'assistant', 'developer', 'system']), content }),
  z.object({ type: z.literal('reasoning'), id, summary: z.array(z.looseObject({ type: z.string() })) }),
  z.object({ type: z.literal('function_call'), id, call_id: z.string(), name: z.string(), arguments: z.string() }),
  z.object({ type: z.literal('function_call_output'), id, call_id: z.string(), output: content }),
  z.object({ type: z.literal('custom_tool_call'), id, call_id: z.string(), name: z.string(), input: z.string() }),
  z.object({ type: z.literal('custom_tool_call_output'), id, call_id: z.string(), output: content }),
]);
type InputItem = z.infer<typeof InputItem>;

const Tool = z.discriminatedUnion('type', [
  z.object({ type: z.literal('function'), name: z.string(), parameters: z.looseObject({}).nullish() }),
  z.object({ type: z.literal('custom'), name: z.string() }),
  z.object({ type: z.literal('namespace'), name: z.string(), tools: z.array(z.looseObject({ type: z.string() })) }),
  z.object({ type: z.literal('local_shell') }),
  z.object({ type: z.literal('web_search') }),
]);

/** Every parameter that the Responses API knows; others are refused as it refuses them. */
const Body = z.strictObject({
  model: z.string(),
  input: z.union([z.string(), z.array(z.unknown())]),
  instructions: z.string().nullish(),
  tools: z.array(Tool).nullish(),
  tool_choice: z.unknown().optional(),
  parallel_tool_calls: z.boolean().nullish(),
  max_output_tokens: z.int().nullish(),
  max_tool_calls: z.int().nullish(),
  stream: z.boolean().nullish(),
  stream_options: z.looseObject({}).nullish(),
  store: z.boolean().nullish(),
  include: z.array(z.string()).nullish(),
  reasoning: z.looseObject({}).nullish(),
  text: z.looseObject({}).nullish(),
  metadata: z.record(z.string(), z.string()).nullish(),
  client_metadata: z.record(z.string(), z.string()).nullish(),
  prompt_cache_key: z.string().nullish(),
  prompt_cache_retention: z.string().nullish(),
  previous_response_id: z.string().nullish(),
  conversation: z.unknown().optional(),
  prompt: z.unknown().optional(),
  background: z.boolean().nullish(),
  temperature: z.number().nullish(),
  top_p: z.number().nullish(),
  top_logprobs: z.int().nullish(),
  truncation: z.string().nullish(),
  service_tier: z.string().nullish(),
  safety_identifier: z.string().nullish(),
  user: z.string().nullish(),
});

const refusal = (message: string, param: string | null, code: string | null, status = 400): Refusal => ({
  status,
  message,
  param,
  code,
});

/** Null when the key is right. A wrong one is echoed in part, as OpenAI does. */
export function checkKey(authorization: string | null, apiKey: string): Refusal | null {
  const sent = /^Bearer (.+)$/.exec(authorization ?? '')?.[1];
  if (sent === undefined) {
    return refusal(
      "You didn't provide an API key. Send it in an Authorization header as a bearer token.",
      null,
      null,
      401,
    );
  }
  if (sent === apiKey) return null;
  const echo = `${sent.slice(0, 8)}${'*'.repeat(12)}${sent.slice(-4)}`;
  return refusal(
    `Incorrect API key provided: ${echo}. You can find your API key in your account.`,
    null,
    'invalid_api_key',
    401,
  );
}

/** Reads a request's body as strictly as OpenAI does. `model` is the only one that exists, where one is given. */
export function checkBody(text: string, contentType: string | null, model: string | null): AcceptedRequest | Refusal {
  if (!/^application\/json\b/i.test(contentType ?? '')) {
    return refusal(
      `Unsupported content type: '${contentType ?? ''}'. This API method only accepts 'application/json' requests.`,
      null,
      'unsupported_content_type',
    );
  }
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {
    return refusal('We could not parse the JSON body of your request.', null, null);
  }
  const parsed = Body.safeParse(json);
  if (!parsed.success) return refusalOfIssue(parsed.error.issues[0], json);
  const body = parsed.data;
  if (model !== null && body.model !== model) {
    return refusal(`The requested model '${body.model}' does not exist.`, 'model', 'model_not_found');
  }
  const most = body.max_output_tokens ?? null;
  if (most !== null && most < 16) {
    const message = `Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got ${most} instead.`;
    return refusal(message, 'max_output_tokens', 'integer_below_min_value');
  }
  const input = readInput(body.input);
  if ('status' in input) return input;
  return {
    model: body.model,
    stream: body.stream === true,
    maxOutputTokens: most,
    cacheKey: body.prompt_cache_key ?? null,
    items: input.items,
    tools: (body.tools ?? []).flatMap((tool) =>
      'name' in tool ? [{ name: tool.name, custom: tool.type === 'custom' }] : [],
    ),
    promptText: JSON.stringify([body.instructions ?? '', body.tools ?? [], body.input]),
  };
}

function refusalOfIssue(issue: z.core.$ZodIssue | undefined, body: unknown): Refusal {
  if (issue?.code === 'unrecognized_keys') {
    const name = issue.keys[0] ?? '';
    return refusal(`Unknown parameter: '${name}'.`, name, 'unknown_parameter');
  }
  const param =
    issue?.path
      .map((part, index) => (typeof part === 'number' ? `[${part}]` : `${index > 0 ? '.' : ''}${String(part)}`))
      .join('') ?? '';
  const absent = typeof body === 'object' && body !== null && issue?.path.length === 1 && !(param in body);
  if (absent) {
    return refusal(`Missing required parameter: '${param}'.`, param, 'missing_required_parameter');
  }
  return refusal(`Invalid value for '${param}': ${issue?.message ?? 'not understood'}.`, param, 'invalid_value');
}

/** Every item must be whole, every output must follow its call, and every call must have its output. */
function readInput(input: string | readonly unknown[]): { items: ConversationItem[] } | Refusal {
  if (typeof input === 'string') return { items: [{ kind: 'person' }] };
  const items: ConversationItem[] = [];
  const open = new Map<string, string>();
  for (const [index, raw] of input.entries()) {
    // A message may leave its type out.
    const typed = typeof raw === 'object' && raw !== null && !('type' in raw) ? { ...raw, type: 'message' } : raw;
    const parsed = InputItem.safeParse(typed);
    if (!parsed.success) {
      const where = `input[${index}]${parsed.error.issues[0]?.path.map((part) => `.${String(part)}`).join('') ?? ''}`;
      return refusal(`Invalid value for '${where}'.`, where, 'invalid_value');
    }
    const item = parsed.data;
    if (item.type === 'function_call' || item.type === 'custom_tool_call') open.set(item.call_id, item.type);
    if (item.type === 'function_call_output' || item.type === 'custom_tool_call_output') {
      const call = open.get(item.call_id);
      if (call === undefined || `${call}_output` !== item.type) {
        return refusal(
          `No tool call found for ${item.type.replaceAll('_', ' ')} with call_id ${item.call_id}.`,
          'input',
          null,
        );
      }
      open.delete(item.call_id);
    }
    const read = conversationItem(item);
    if (read !== null) items.push(read);
  }
  const [missing] = open.keys();
  if (missing !== undefined) return refusal(`No tool output found for function call ${missing}.`, 'input', null);
  return { items };
}

function conversationItem(item: InputItem): ConversationItem | null {
  switch (item.type) {
    case 'message':
      // Developer and system messages are the harness's own and start no turn.
      if (item.role === 'user') return { kind: 'person' };
      return item.role === 'assistant' ? { kind: 'model' } : null;
    case 'reasoning':
      return { kind: 'model' };
    case 'function_call':
    case 'custom_tool_call':
      return { kind: 'call', id: item.call_id, name: item.name };
    default:
      return { kind: 'output', id: item.call_id, text: textOf(item.output) };
  }
}

const textOf = (value: z.infer<typeof content>): string =>
  typeof value === 'string' ? value : value.map((part) => (typeof part.text === 'string' ? part.text : '')).join('');
