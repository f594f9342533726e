import { describe, expect, test } from 'bun:test';
import type { GatewayRun } from '../../src/gateway/gateway.ts';
import { capResponsesRequest, readText } from '../../src/gateway/limits.ts';
import { responsesUrl } from '../../src/gateway/providers.ts';

const run: GatewayRun = {
  runId: 'r',
  socketPath: '/nowhere',
  provider: 'openai',
  model: 'gpt-5.4',
  maxOutputTokensPerRequest: 1000,
  apiKey: async () => null,
  reserve: async () => null,
  settle: async () => {},
  onLimit: () => {},
};

const cap = (body: unknown) => capResponsesRequest(typeof body === 'string' ? body : JSON.stringify(body), run, 'hash');
const leaves = (body: unknown): Record<string, unknown> => {
  const capped = cap(body);
  return capped.ok ? (JSON.parse(capped.body) as Record<string, unknown>) : { refused: capped.code };
};

test.each([
  [undefined, 1000],
  [null, 1000],
  [5000, 1000],
  [1000, 1000],
  [20, 20],
  [0, 1000],
  [-1, 1000],
  ['99999', 1000],
])('a cap of %p leaves as %p', (asked, left) => {
  expect(leaves({ input: 'x', max_output_tokens: asked }).max_output_tokens).toBe(left);
});

test('the model and the cache key are ours; what names somebody or changes the price is taken out', () => {
  expect(
    leaves({
      model: 'other',
      input: 'x',
      store: false,
      prompt_cache_key: 'theirs',
      service_tier: 'priority',
      user: 'u',
      safety_identifier: 's',
      metadata: { a: 'b' },
      client_metadata: { installation_id: 'i' },
    }),
  ).toEqual({ model: 'gpt-5.4', input: 'x', store: false, prompt_cache_key: 'hash', max_output_tokens: 1000 });
});

describe('what would go past the proxy or the meter is refused', () => {
  test.each<[string, object]>([
    ['a tool server', { tools: [{ type: 'mcp', server_url: 'https://x.example' }] }],
    ['a web search', { tools: [{ type: 'web_search_preview' }] }],
    ['a tool within a namespace', { tools: [{ type: 'namespace', name: 'n', tools: [{ type: 'code_interpreter' }] }] }],
    ['a tool within the input', { input: [{ type: 'additional_tools', tools: [{ type: 'mcp' }] }] }],
    ['a shell at the provider', { tools: [{ type: 'shell', environment: { type: 'container_auto' } }] }],
    [
      'an image to fetch',
      { input: [{ role: 'user', content: [{ type: 'input_image', image_url: 'https://x.example/?secret' }] }] },
    ],
    ['a file to fetch', { input: [{ role: 'user', content: [{ type: 'input_file', file_url: 'http://x.example' }] }] }],
    ['work in the background', { background: true }],
  ])('%s', (_name, body) => {
    expect(Object.keys(leaves(body))).toEqual(['refused']);
  });

  test('while a harness’s own tools and images pass', () => {
    const body = {
      input: [{ role: 'user', content: [{ type: 'input_image', image_url: 'data:image/png;base64,AA==' }] }],
      tools: [
        { type: 'function', name: 'exec_command', parameters: { properties: { image_url: { type: 'string' } } } },
        { type: 'custom', name: 'apply_patch' },
        { type: 'local_shell' },
        { type: 'namespace', name: 'mcp__ctx', tools: [{ type: 'function', name: 'lookup' }] },
      ],
    };
    expect(leaves(body)).toMatchObject(body);
  });
});

test.each(['', '{', '[]', '"text"', 'null', '1'])('a body of %p is refused', (text) => {
  expect(cap(text)).toMatchObject({ ok: false, status: 400, code: 'invalid_json' });
});

test('a body is read up to the limit, counted in bytes, and no further', async () => {
  expect(await readText(new Blob(['éé']).stream(), 4)).toBe('éé');
  expect(await readText(new Blob(['ééa']).stream(), 4)).toBeNull();
  expect(await readText(null, 4)).toBe('');
});

test.each([
  ['https://api.openai.com/v1', 'https://api.openai.com/v1/responses'],
  ['https://api.openai.com', 'https://api.openai.com/v1/responses'],
  ['https://api.openai.com/', 'https://api.openai.com/v1/responses'],
  ['http://relay:4000/openai', 'http://relay:4000/openai/v1/responses'],
  ['https://relay.example/v1/account/openai/', 'https://relay.example/v1/account/openai/responses'],
  ['https://x.example/openai/v1?api-version=preview', 'https://x.example/openai/v1/responses?api-version=preview'],
])('the base URL %s leads to %s', (base, url) => {
  expect(responsesUrl('openai', base)).toBe(url);
  expect(responsesUrl('mistral', base)).toBeNull();
});
