import { expect, test } from 'bun:test';
import { untoldUsage, usageEvent } from '../../src/runner/usage.ts';

const request = (inputTokens: number) => ({
  model: 'gpt-5.4',
  inputTokens,
  cachedInputTokens: 0,
  outputTokens: 5,
  costMicros: null,
});

test('a request that the transcript does not tell of is told, in its place in the order', () => {
  expect(untoldUsage([request(1), request(2), request(3)], [request(2)])).toEqual([
    usageEvent(request(1)),
    usageEvent(request(3)),
  ]);
});

test('equal requests are told as often as they were made', () => {
  expect(untoldUsage([request(1), request(1), request(1)], [request(1)])).toHaveLength(2);
});

test('nothing is told twice', () => {
  expect(untoldUsage([request(1), request(2)], [request(2), request(1)])).toEqual([]);
});
