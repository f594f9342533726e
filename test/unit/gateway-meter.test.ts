import { describe, expect, test } from 'bun:test';
import { cutEvents, dataOf } from '../../src/gateway/events.ts';
import { endingOfEvent, endingOfResponse, failureOfStatus, noUsage } from '../../src/gateway/meter.ts';
import { costMicros } from '../../src/gateway/prices.ts';

describe('events', () => {
  const bytes = new TextEncoder().encode('event: a\ndata: {"t":"é𝄞"}\n\n: beat\r\n\r\ndata: 1\ndata: 2\n\nrest');
  const whole = ['event: a\ndata: {"t":"é𝄞"}\n\n', ': beat\r\n\r\n', 'data: 1\ndata: 2\n\n'];

  test.each([1, 2, 3, 5, 1000])('are the same in pieces of %i bytes', (size) => {
    const cutter = cutEvents(1000);
    const events: string[] = [];
    for (let at = 0; at < bytes.length; at += size) events.push(...cutter.push(bytes.slice(at, at + size)));
    expect(events).toEqual(whole);
    expect(cutter.rest()).toEqual(['rest']);
  });

  test('give their data, or nothing where it is no JSON', () => {
    expect(whole.map(dataOf)).toEqual([{ t: 'é𝄞' }, undefined, undefined]);
    expect(dataOf('data: {"a":\ndata: 1}\n\n')).toEqual({ a: 1 });
  });

  test('may not grow without end', () => {
    expect(() => cutEvents(10).push(new TextEncoder().encode('data: 12345'))).toThrow('too long');
  });
});

test('usage counts cached tokens once, as part of the input', () => {
  const usage = { input_tokens: 100, input_tokens_details: { cached_tokens: 40 }, output_tokens: 7, total_tokens: 107 };
  expect(endingOfResponse({ status: 'completed', usage })).toEqual({
    failure: null,
    usage: { inputTokens: 100, cachedInputTokens: 40, cacheWriteTokens: 0, outputTokens: 7 },
  });
});

test.each([
  [{ input_tokens: -5, output_tokens: 'many' }, noUsage],
  [
    { input_tokens: 10, input_tokens_details: { cached_tokens: 90 }, output_tokens: 1.5 },
    { ...noUsage, inputTokens: 10, cachedInputTokens: 10 },
  ],
  [null, noUsage],
])('usage of %j is not believed', (usage, read) => {
  expect(endingOfResponse({ status: 'completed', usage }).usage).toEqual(read);
});

test('an event in the middle ends nothing', () => {
  for (const middle of [
    { type: 'response.created', response: { usage: null } },
    { type: 'response.output_text.delta' },
    undefined,
    [],
    7,
  ]) {
    expect(endingOfEvent(middle)).toBeNull();
  }
});

test.each([
  [401, 'authentication'],
  [403, 'authentication'],
  [429, 'rate_limited'],
  [400, 'rejected'],
  [422, 'rejected'],
  [500, 'unavailable'],
  [529, 'unavailable'],
  [302, 'unavailable'],
  [204, 'unavailable'],
] as const)('status %i means %s', (status, failure) => {
  expect(failureOfStatus(status)).toBe(failure);
});

describe('the price', () => {
  const usage = { inputTokens: 1000, cachedInputTokens: 200, cacheWriteTokens: 0, outputTokens: 50 };

  test('is exact where it is exact, and rounded up where it is not', async () => {
    expect(await costMicros('openai', 'gpt-5.4', usage)).toBe(2800);
    expect(await costMicros('openai', 'gpt-5.4', { ...noUsage, inputTokens: 1 })).toBe(3);
  });

  test('is known at each provider', async () => {
    const models = [
      ['anthropic', 'claude-sonnet-5'],
      ['google', 'gemini-2.5-pro'],
      ['xai', 'grok-4'],
      ['mistral', 'mistral-large-latest'],
      ['deepseek', 'deepseek-chat'],
    ] as const;
    for (const [provider, model] of models) expect(await costMicros(provider, model, usage)).toBeGreaterThan(0);
  });

  test('is null where the model is unknown, and nothing where nothing was used', async () => {
    expect(await costMicros('openai', 'gpt-999', usage)).toBeNull();
    expect(await costMicros('openai', 'gpt-999', noUsage)).toBe(0);
  });
});
