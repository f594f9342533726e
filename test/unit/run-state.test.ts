import { describe, expect, test } from 'bun:test';
import {
  advanced,
  claimed,
  type Ending,
  enqueued,
  isActive,
  isFinished,
  lost,
  maxAttempts,
  type RunState,
  reopened,
  requeued,
  settled,
} from '../../src/runs/state.ts';

const running = (change: Partial<RunState> = {}): RunState => ({ ...claimed(enqueued), ...change });
const finished = (['succeeded', 'failed', 'cancelled'] as const).map((status) => running({ status, phase: null }));

describe('a claim', () => {
  test('begins a waiting run and counts the attempt', () => {
    expect(claimed(enqueued)).toMatchObject({ status: 'running', phase: 'preparing', attempts: 1, turn: 1 });
  });

  test('leaves the phase of a rescued run as it was', () => {
    expect(claimed(running({ phase: 'agent' }))).toMatchObject({ status: 'running', phase: 'agent', attempts: 1 });
  });

  test.each(finished)('refuses a run that has $status', (run) => {
    expect(() => claimed(run)).toThrow(run.status);
  });
});

describe('phases', () => {
  test('go forward and never back', () => {
    expect(advanced(running(), 'agent').phase).toBe('agent');
    expect(() => advanced(running({ phase: 'agent' }), 'preparing')).toThrow('back');
  });

  test.each(finished)('do not exist for a run that has $status', (run) => {
    expect(() => advanced(run, 'agent')).toThrow(run.status);
  });
});

describe('a lost run', () => {
  test.each(['preparing', 'checking_out'] as const)('goes back to the queue from %s', (phase) => {
    expect(lost(running({ phase }))).toEqual({ requeue: true });
  });

  test('is given up after the last attempt', () => {
    expect(lost(running({ attempts: maxAttempts }))).toMatchObject({
      requeue: false,
      ending: { status: 'failed', category: 'worker_lost' },
    });
  });

  test.each(['agent', 'finishing'] as const)('is never begun again once it was in %s', (phase) => {
    expect(lost(running({ phase }))).toMatchObject({ requeue: false, ending: { category: 'worker_lost' } });
  });

  test('waits again after it was given back', () => {
    expect(requeued(running())).toMatchObject({ status: 'pending', phase: 'queued', attempts: 1 });
    expect(() => requeued(enqueued)).toThrow('pending');
  });
});

describe('the end', () => {
  const endings: Ending[] = [
    { status: 'succeeded', resultSummary: 'done' },
    { status: 'failed', category: 'execution_failed', message: 'no' },
    { status: 'cancelled' },
  ];

  test.each(endings)('is $status as it came', (ending) => {
    expect(settled(running(), ending)).toEqual(ending);
  });

  test.each(endings)('is cancelled where a cancel was asked for, though $status landed', (ending) => {
    expect(settled(running({ cancelRequested: true }), ending)).toEqual({ status: 'cancelled' });
  });

  test.each(finished)('comes once: not to a run that has $status', (run) => {
    expect(() => settled(run, { status: 'cancelled' })).toThrow('ended already');
  });
});

describe('a follow-up', () => {
  test.each(finished)('opens the next turn of a run that has $status', (run) => {
    expect(reopened({ ...run, attempts: 3, cancelRequested: true })).toEqual({
      status: 'pending',
      phase: 'queued',
      turn: 2,
      attempts: 0,
      cancelRequested: false,
    });
  });

  test.each([enqueued, running()])('is refused while the run is $status', (run) => {
    expect(() => reopened(run)).toThrow(run.status);
  });
});

test('a run is either active or finished', () => {
  for (const run of [enqueued, running(), ...finished]) expect(isActive(run.status)).toBe(!isFinished(run.status));
});
