import { expect, test } from 'bun:test';
import { TurnFailure } from '../../src/runner/failure.ts';
import { checkoutFailedCode, endingOf, endingOfError, type TurnEnd } from '../../src/runner/outcome.ts';
import type { FailureCategory } from '../../src/runs/schema.ts';
import { SandboxFailure } from '../../src/sandbox/sandbox.ts';

const good: TurnEnd = {
  exit: { code: 0, outOfMemory: false },
  conclusion: { ok: true, answer: 'Done.', failure: null },
  stopReason: null,
  interrupted: false,
  model: { lastFailure: null, requestLimitHit: false },
  diagnostics: '',
  limits: { maxModelRequests: 5, maxRuntimeSeconds: 60 },
};
const bad: TurnEnd = {
  ...good,
  exit: { code: 1, outOfMemory: false },
  conclusion: { ok: false, answer: null, failure: { category: 'execution_failed', message: 'It failed.' } },
};
const model = (lastFailure: TurnEnd['model']['lastFailure']) => ({
  ...bad,
  model: { lastFailure, requestLimitHit: false },
});

test('an agent that ended well succeeded with its answer', () => {
  expect(endingOf(good)).toEqual({ status: 'succeeded', resultSummary: 'Done.' });
});

const table: [string, TurnEnd, FailureCategory][] = [
  ['stopped for its time', { ...bad, stopReason: 'runtime_limit' }, 'runtime_limit_exceeded'],
  ['stopped for its time though it answered', { ...good, stopReason: 'runtime_limit' }, 'runtime_limit_exceeded'],
  ['stopped for its requests', { ...bad, stopReason: 'model_requests' }, 'model_request_limit_exceeded'],
  [
    'refused a request by the gateway',
    { ...good, model: { lastFailure: null, requestLimitHit: true } },
    'model_request_limit_exceeded',
  ],
  ['stopped for its output', { ...bad, stopReason: 'output_flood' }, 'execution_failed'],
  ['out of memory', { ...bad, exit: { code: 137, outOfMemory: true } }, 'sandbox_out_of_memory'],
  [
    'out of memory before the model failed',
    { ...model('unavailable'), exit: { code: 137, outOfMemory: true } },
    'sandbox_out_of_memory',
  ],
  [
    'out of memory while the work trees were made',
    { ...bad, exit: { code: checkoutFailedCode, outOfMemory: true } },
    'sandbox_out_of_memory',
  ],
  [
    'the key refused after a command ran out of memory',
    { ...model('authentication'), exit: { code: 1, outOfMemory: true } },
    'model_authentication_failed',
  ],
  ['work trees not made', { ...bad, exit: { code: checkoutFailedCode, outOfMemory: false } }, 'repository_unavailable'],
  [
    'work trees not made for want of space',
    { ...bad, exit: { code: checkoutFailedCode, outOfMemory: false }, diagnostics: 'fatal: No space left on device' },
    'sandbox_disk_full',
  ],
  ['a door that did not open', { ...bad, exit: { code: 98, outOfMemory: false } }, 'sandbox_unavailable'],
  ['the key refused', model('authentication'), 'model_authentication_failed'],
  ['too many requests', model('rate_limited'), 'model_rate_limited'],
  ['the provider down', model('unavailable'), 'model_unavailable'],
  ['an answer too long', model('output_limit'), 'output_limit_exceeded'],
  ['a request rejected', model('rejected'), 'execution_failed'],
  ['no space left', { ...bad, diagnostics: 'write error: No space left on device' }, 'sandbox_disk_full'],
  ['the engine gone', { ...bad, interrupted: true, exit: { code: 137, outOfMemory: false } }, 'sandbox_unavailable'],
  ['what the harness says, last of all', bad, 'execution_failed'],
  [
    'what the harness says when the last request was cut by itself',
    {
      ...model('aborted'),
      conclusion: { ok: false, answer: null, failure: { category: 'model_unavailable', message: 'Cut.' } },
    },
    'model_unavailable',
  ],
  ['a status without a word', { ...bad, conclusion: { ok: false, answer: null, failure: null } }, 'execution_failed'],
];

test.each(table)('%s', (_, end, category) => {
  const ending = endingOf(end);
  expect(ending).toMatchObject({ status: 'failed', category });
  expect(ending.status === 'failed' && ending.message).toMatch(/^[A-Z].*\.$/);
});

test('a request that was refused for its limit does not hide behind a good exit', () => {
  expect(endingOf({ ...good, model: { lastFailure: 'request_limit', requestLimitHit: true } })).toMatchObject({
    category: 'model_request_limit_exceeded',
  });
});

test.each([
  ['a turn that cannot go on', new TurnFailure('repository_unavailable', 'Gone.'), 'repository_unavailable', 'Gone.'],
  ['no engine', new SandboxFailure('unavailable', 'Start Docker.'), 'sandbox_unavailable', 'Start Docker.'],
  ['no image', new SandboxFailure('image_missing', 'Build it.'), 'sandbox_unavailable', 'Build it.'],
  ['a full disk', new SandboxFailure('out_of_disk', 'Free space.'), 'sandbox_disk_full', 'Free space.'],
] as const)('%s ends the run with its own words', (_, error, category, message) => {
  expect(endingOfError(error)).toEqual({ status: 'failed', category, message });
});

test('an error that nobody expected tells the caller nothing of itself', () => {
  expect(JSON.stringify(endingOfError(new Error('/srv/data: password=hunter2')))).not.toMatch(/srv|hunter2/);
});
