import { describe, expect, test } from 'bun:test';
import { type RehearsalModel, startRehearsalModel } from '../../src/demo/rehearsal.ts';
import type { RehearsalFault, RehearsalScript } from '../../src/demo/rehearsal-script.ts';
import { cutEvents, dataOf } from '../../src/gateway/events.ts';
import { openTestGateway, realKey } from '../support/gateway.ts';

const script: RehearsalScript = {
  turns: [
    {
      steps: [
        { reasoning: 'Look first.', say: 'I look around.', run: 'ls' },
        { run: ['echo one', 'echo two'] },
        { patch: '*** Begin Patch\n*** End Patch\n' },
      ],
      answer: (outputs) => `Saw ${outputs.join(', ')}.`,
    },
    { steps: [], answer: 'Nothing more to do.' },
  ],
};
const tools = [
  { type: 'function', name: 'exec_command', parameters: {} },
  { type: 'function', name: 'write_stdin', parameters: {} },
  { type: 'custom', name: 'apply_patch' },
];
const person = (text: string) => ({ type: 'message', role: 'user', content: [{ type: 'input_text', text }] });

type Item = Record<string, unknown>;
type Ask = (
  body: object,
  init?: { path?: string; headers?: Record<string, string>; method?: string },
) => Promise<Response>;

async function rehearse(
  changes: Partial<RehearsalScript> = {},
): Promise<RehearsalModel & AsyncDisposable & { ask: Ask }> {
  const model = await startRehearsalModel({ apiKey: realKey, model: 'gpt-5.4', script: { ...script, ...changes } });
  const ask: Ask = (body, { path = '/responses', headers = {}, method = 'POST' } = {}) =>
    fetch(`${model.url}${path}`, {
      method,
      headers: { authorization: `Bearer ${realKey}`, 'content-type': 'application/json', ...headers },
      ...(method === 'POST' ? { body: JSON.stringify(body) } : {}),
    });
  return Object.assign(model, { ask, [Symbol.asyncDispose]: () => model.stop() });
}

const eventsOf = (text: string): Item[] => {
  const cutter = cutEvents(1_000_000);
  return cutter.push(new TextEncoder().encode(text)).map((event) => (dataOf(event) ?? { type: 'malformed' }) as Item);
};

/** What a harness does: asks, runs the tools that are called, and asks again until there are no more calls. */
async function converse(input: Item[], send: (body: object) => Promise<Response>): Promise<string> {
  for (;;) {
    const events = eventsOf(await (await send({ model: 'gpt-5.4', input, tools, stream: true })).text());
    const response = events.at(-1)?.response as { output: Item[] };
    input.push(...response.output);
    const calls = response.output.filter((item) => String(item.type).endsWith('_call'));
    if (calls.length === 0) {
      const message = response.output.at(-1)?.content as { text: string }[];
      return message[0]?.text ?? '';
    }
    for (const call of calls) {
      const ran =
        call.type === 'function_call' ? (JSON.parse(String(call.arguments)) as { cmd: string }).cmd : 'patched';
      input.push({ type: `${call.type}_output`, call_id: call.call_id, output: ran });
    }
  }
}

test('a conversation through the gateway follows the script, and a follow-up goes on with the next turn', async () => {
  await using model = await rehearse();
  await using gateway = await openTestGateway(model.url);
  const input: Item[] = [
    { type: 'message', role: 'developer', content: 'rules' },
    person('<environment_context>'),
    person('do it'),
  ];
  expect(await converse(input, (body) => gateway.post(body))).toBe('Saw ls, echo one, echo two, patched.');
  input.push(person('and now?'));
  expect(await converse(input, (body) => gateway.post(body))).toBe('Nothing more to do.');
  await gateway.settled(5);
  expect(gateway.session.record()).toMatchObject({ requests: 5, succeeded: 5, lastFailure: null });
  expect(model.requests).toHaveLength(5);
  expect(model.requests.at(-1)).toMatchObject({
    status: 200,
    path: '/v1/responses',
    body: { max_output_tokens: 1000, prompt_cache_key: 'keyed-hash' },
  });
  expect(gateway.settlements.every(({ outcome }) => outcome.inputTokens > 0 && outcome.outputTokens > 0)).toBe(true);
});

test('the events come in the order of the real API, numbered, each item added and done', async () => {
  await using model = await rehearse();
  const text = await (await model.ask({ model: 'gpt-5.4', input: 'go', tools, stream: true })).text();
  const events = eventsOf(text);
  expect(events.map((event) => event.sequence_number)).toEqual(events.map((_, index) => index));
  const types = events.map((event) => event.type);
  expect(types.filter((type, index) => type !== types[index - 1])).toEqual([
    'response.created',
    'response.in_progress',
    'response.output_item.added',
    'response.reasoning_summary_part.added',
    'response.reasoning_summary_text.delta',
    'response.reasoning_summary_text.done',
    'response.reasoning_summary_part.done',
    'response.output_item.done',
    'response.output_item.added',
    'response.content_part.added',
    'response.output_text.delta',
    'response.output_text.done',
    'response.content_part.done',
    'response.output_item.done',
    'response.output_item.added',
    'response.function_call_arguments.delta',
    'response.function_call_arguments.done',
    'response.output_item.done',
    'response.completed',
  ]);
  const whole = (await (await model.ask({ model: 'gpt-5.4', input: 'go', tools })).json()) as {
    output: Item[];
    status: string;
  };
  expect(whole.status).toBe('completed');
  expect(whole.output.map((item) => item.type)).toEqual(['reasoning', 'message', 'function_call']);
});

test('a long command is waited for, and counts as one step', async () => {
  await using model = await rehearse();
  const call = { type: 'function_call', call_id: 'c1', name: 'exec_command', arguments: '{}' };
  const early = { type: 'function_call_output', call_id: 'c1', output: 'Process running with session ID 7' };
  const next = async (input: Item[]) => {
    const body = (await (await model.ask({ model: 'gpt-5.4', input, tools })).json()) as { output: Item[] };
    return body.output.map((item) => `${item.name} ${item.arguments}`);
  };
  const input = [person('go'), call, early];
  expect(await next(input)).toEqual(['write_stdin {"session_id":7,"chars":"","yield_time_ms":30000}']);
  const waited = [
    { type: 'function_call', call_id: 'c2', name: 'write_stdin', arguments: '{}' },
    { type: 'function_call_output', call_id: 'c2', output: 'Process exited with code 0' },
  ];
  expect((await next([...input, ...waited])).map((text) => JSON.parse(text.slice(13)).cmd)).toEqual([
    'echo one',
    'echo two',
  ]);
});

describe('what OpenAI refuses is refused', () => {
  const call = { type: 'function_call', call_id: 'c1', name: 'exec_command', arguments: '{}' };
  const good = { model: 'gpt-5.4', input: 'go' };
  const cases: [name: string, body: object, init: Parameters<Ask>[1], status: number, code: string | null][] = [
    ['no key', good, { headers: { authorization: '' } }, 401, null],
    ['a wrong key', good, { headers: { authorization: 'Bearer wrong' } }, 401, 'invalid_api_key'],
    ['another path', good, { path: '/chat/completions' }, 404, null],
    ['another method', good, { method: 'GET' }, 404, null],
    ['another content type', good, { headers: { 'content-type': 'text/plain' } }, 400, 'unsupported_content_type'],
    ['another model', { ...good, model: 'gpt-4' }, {}, 400, 'model_not_found'],
    ['no model', { input: 'go' }, {}, 400, 'missing_required_parameter'],
    ['no input', { model: 'gpt-5.4' }, {}, 400, 'missing_required_parameter'],
    ['an unknown parameter', { ...good, max_tokens: 5 }, {}, 400, 'unknown_parameter'],
    ['a cap under 16', { ...good, max_output_tokens: 15 }, {}, 400, 'integer_below_min_value'],
    ['stream as text', { ...good, stream: 'true' }, {}, 400, 'invalid_value'],
    ['an unknown item', { ...good, input: [{ type: 'thought' }] }, {}, 400, 'invalid_value'],
    ['a message without content', { ...good, input: [{ role: 'user' }] }, {}, 400, 'invalid_value'],
    [
      'an output without its call',
      { ...good, input: [{ type: 'function_call_output', call_id: 'c1', output: '' }] },
      {},
      400,
      null,
    ],
    [
      'an output of another kind',
      { ...good, input: [call, { type: 'custom_tool_call_output', call_id: 'c1', output: '' }] },
      {},
      400,
      null,
    ],
    ['a call without its output', { ...good, input: [call] }, {}, 400, null],
  ];
  test.each(cases)('%s', async (_name, body, init, status, code) => {
    await using model = await rehearse();
    const answer = await model.ask(body, init);
    const { error } = (await answer.json()) as { error: Item };
    expect([answer.status, error.code]).toEqual([status, code]);
    expect(String(error.message)).not.toContain(realKey);
    expect(model.requests[0]?.status).toBe(status);
  });
});

describe('a fault', () => {
  const last = async (fault: RehearsalFault, body: object = {}) => {
    await using model = await rehearse({ fault: (number) => (number === 1 ? fault : null) });
    const answer = await model.ask({ model: 'gpt-5.4', input: 'go', tools, stream: true, ...body });
    return {
      status: answer.status,
      retryAfter: answer.headers.get('retry-after'),
      types: eventsOf(await answer.text()).map((event) => event.type),
    };
  };

  test('of a status refuses', async () => {
    expect(await last({ kind: 'status', status: 429, retryAfterSeconds: 3 })).toMatchObject({
      status: 429,
      retryAfter: '3',
    });
  });

  test('cuts, caps, fails or garbles the stream', async () => {
    expect((await last({ kind: 'cut' })).types.at(-1)).not.toStartWith('response.c');
    expect((await last({ kind: 'incomplete' })).types.at(-1)).toBe('response.incomplete');
    expect((await last({ kind: 'failed', code: 'server_error' })).types.at(-1)).toBe('response.failed');
    expect((await last({ kind: 'malformed' })).types.at(-1)).toBe('malformed');
    expect((await last({ kind: 'slow', delayMs: 0 })).types.at(-1)).toBe('response.completed');
  });

  test('is not needed for the cap: a reply over it is cut as OpenAI cuts it', async () => {
    await using model = await rehearse({ turns: [{ steps: [], answer: 'word '.repeat(100) }] });
    const answer = await model.ask({ model: 'gpt-5.4', input: 'go', max_output_tokens: 16 });
    expect(await answer.json()).toMatchObject({
      status: 'incomplete',
      incomplete_details: { reason: 'max_output_tokens' },
      usage: { output_tokens: 16 },
    });
  });

  test('that hangs ends when the other side goes away, and when the model is stopped', async () => {
    await using model = await rehearse({ fault: () => ({ kind: 'hang' }) });
    await using gateway = await openTestGateway(model.url);
    const gone = new AbortController();
    const answer = await gateway.post({ input: 'go', tools, stream: true }, { signal: gone.signal });
    await (answer.body as ReadableStream<Uint8Array>).getReader().read();
    gone.abort();
    await model.requests[0]?.hungUp;
    await gateway.settled(1);
    expect(gateway.settlements[0]?.outcome.failure).toBe('aborted');
    const second = await model.ask({ model: 'gpt-5.4', input: 'go', stream: true });
    await model.stop();
    await second.text().catch(() => '');
  });
});

test('what was asked before under the same cache key is counted as cached', async () => {
  await using model = await rehearse();
  const input = 'long '.repeat(2000);
  const cached = async () => {
    const answer = await model.ask({ model: 'gpt-5.4', input, prompt_cache_key: 'k' });
    return ((await answer.json()) as { usage: { input_tokens_details: { cached_tokens: number } } }).usage
      .input_tokens_details.cached_tokens;
  };
  expect(await cached()).toBe(0);
  expect(await cached()).toBe(2432);
});
