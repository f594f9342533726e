import { describe, expect, test } from 'bun:test';
import { readFileSync } from 'node:fs';
import { codexReader } from '../../src/harness/codex-reader.ts';

const authentication = 'The model provider refused the API key: check the model credential';
const rate = 'The model provider refused further requests for now: try again later or raise its rate limit';
const unavailable = 'The model provider failed or could not be reached: try again later';
const output = 'An answer of the model was longer than maxOutputTokensPerRequest: raise it in the automation';
const requests = 'The run used up its maxModelRequests: raise it in the automation';
const status143 = 'The agent program ended with exit status 143: look at the raw stream of the turn';

describe('codex failures as recorded', () => {
  test.each([
    ['f-codex-401', 1, 'model_authentication_failed', authentication],
    ['f-codex-429', 1, 'model_rate_limited', rate],
    ['f-codex-500', 1, 'model_unavailable', unavailable],
    ['f-codex-cut', 1, 'model_unavailable', unavailable],
    ['f-codex-trunc', 1, 'output_limit_exceeded', output],
    ['f-codex-hang-stop', 143, 'execution_failed', status143],
    ['f-codex-sleep-stop', 143, 'execution_failed', status143],
  ] as const)('%s with exit status %i is %s', (name, exitCode, category, message) => {
    const reader = codexReader();
    const recorded = readFileSync(new URL(`../fixtures/harness/${name}.jsonl`, import.meta.url), 'utf8');
    const signals = recorded.split('\n').flatMap((line) => reader.read(line));
    expect(reader.conclude(exitCode).failure).toEqual({ category, message });
    expect(reader.conclude(exitCode).ok).toBe(false);
    expect(JSON.stringify(signals)).not.toMatch(/https?:|172\.17|sk-/);
  });
});

describe('codex failures by their words', () => {
  const conclude = (message: string, exitCode = 1) => {
    const reader = codexReader();
    reader.read(JSON.stringify({ type: 'turn.failed', error: { message } }));
    return reader.conclude(exitCode).failure;
  };

  test.each([
    ['unexpected status 403 Forbidden: no access', 'model_authentication_failed', authentication],
    ['unexpected status 503 Service Unavailable: busy', 'model_unavailable', unavailable],
    ['exceeded retry limit, last status: 502 Bad Gateway', 'model_unavailable', unavailable],
    [
      'stream disconnected before completion: error sending request for url (http://127.0.0.1:3129/v1/responses)',
      'model_unavailable',
      unavailable,
    ],
    [
      'unexpected status 400 Bad Request: {"error":"maxModelRequests (5) reached"}',
      'model_request_limit_exceeded',
      requests,
    ],
    ['{"type":"error","status":429,"error":{"message":"slow down"}}', 'model_rate_limited', rate],
  ] as const)('%s', (text, category, message) => {
    expect(conclude(text)).toEqual({ category, message });
  });

  test('anything else is told in one sentence without address and key', () => {
    const text =
      'unexpected status 404 Not Found: no model `x`\nfor sk-proj-abcdef, url: http://127.0.0.1:3129/v1/responses';
    expect(conclude(text)).toEqual({
      category: 'execution_failed',
      message: 'The agent failed: unexpected status 404 Not Found: no model `x` for [key]',
    });
    expect(conclude('{"type":"error","status":400,"error":{"message":"Unknown tool"}}')).toEqual({
      category: 'execution_failed',
      message: 'The agent failed: Unknown tool',
    });
    expect(conclude('z'.repeat(5000))?.message.length).toBeLessThan(350);
  });

  test('an error that came as the JSON of its answer is told by its message', () => {
    const [signal] = codexReader().read(
      JSON.stringify({ type: 'error', message: '{"error":{"message":"maxModelRequests (1) reached"}}' }),
    );
    expect(signal).toEqual({
      kind: 'event',
      event: { type: 'error', data: { message: 'maxModelRequests (1) reached' } },
    });
    expect(conclude('{"error":{"message":"maxModelRequests (1) reached"}}')?.category).toBe(
      'model_request_limit_exceeded',
    );
  });

  test('a failed turn is a failure even with exit status 0', () => {
    expect(conclude('odd', 0)).toEqual({ category: 'execution_failed', message: 'The agent failed: odd' });
  });

  test('an error that codex got over is no failure', () => {
    const reader = codexReader();
    reader.read(JSON.stringify({ type: 'error', message: 'something passing' }));
    reader.read(JSON.stringify({ type: 'turn.completed', usage: {} }));
    expect(reader.conclude(0)).toEqual({ ok: true, answer: null, failure: null });
  });

  test('exit status 0 without a completed turn is a failure', () => {
    const message = 'The agent program ended before its turn was complete: send a message to continue';
    expect(codexReader().conclude(0)).toEqual({
      ok: false,
      answer: null,
      failure: { category: 'execution_failed', message },
    });
  });
});
