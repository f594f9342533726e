import { describe, expect, test } from 'bun:test';
import { type AgentProgress, orLetGo, watchAgent } from '../../src/runner/agent.ts';
import { Detached } from '../../src/runner/failure.ts';
import type { Recorder } from '../../src/runner/recorder.ts';
import type { StopReason } from '../../src/runs/row.ts';
import { type SandboxExit, SandboxFailure, type SandboxLine } from '../../src/sandbox/sandbox.ts';

/** An agent that prints what it is told to and ends when it is told to, and the parts that watch it. */
function setUp(given: { progress?: Partial<AgentProgress>; remainingMs?: number; stubborn?: boolean } = {}) {
  const output = new TransformStream<string, string>();
  const writer = output.writable.getWriter();
  const exit = Promise.withResolvers<SandboxExit>();
  const stops: number[] = [];
  const read: string[] = [];
  const recorded: { line: number; events: number }[] = [];
  const reasons: StopReason[] = [];
  /** How many stops had been asked for when the ways were closed. */
  const closed: number[] = [];
  const cancel = new AbortController();
  const letGo = new AbortController();
  const limit = new AbortController();
  const end = async (code = 0, more: Partial<SandboxExit> = {}) => {
    await writer.close();
    exit.resolve({ code, outOfMemory: false, ...more });
  };
  async function* lines(): AsyncGenerator<SandboxLine> {
    let number = 0;
    for await (const text of output.readable) {
      number += 1;
      yield { number, text, cut: false };
    }
  }
  const progress = { linesSeen: 0, stopReason: null, ...given.progress };
  const done = watchAgent({
    process: {
      id: 'p',
      lines,
      exit: exit.promise,
      diagnostics: async () => 'diagnostics',
      async stop(graceMs) {
        stops.push(graceMs);
        if (!given.stubborn && stops.length === 1) await end(143);
      },
      remove: async () => {},
    },
    reader: {
      read(text) {
        read.push(text);
        return [{ kind: 'event', event: { type: 'message', data: { text } } }];
      },
      conclude: (code) => ({ ok: code === 0, answer: read.at(-1) ?? null, failure: null }),
    },
    recorder: {
      add: (_: unknown, change: { stopReason?: StopReason } = {}) => {
        if (change.stopReason) reasons.push(change.stopReason);
      },
      line: async (line: SandboxLine, events: unknown[]) => {
        recorded.push({ line: line.number, events: events.length });
      },
    } as unknown as Recorder,
    progress,
    control: { cancelled: cancel.signal, letGo: letGo.signal },
    remainingMs: given.remainingMs ?? 60_000,
    modelLimit: limit.signal,
    async closeWays() {
      closed.push(stops.length);
    },
  });
  return {
    print: (text: string) => writer.write(text),
    end,
    done,
    stops,
    read,
    recorded,
    reasons,
    progress,
    cancel,
    letGo,
    limit,
    closed,
  };
}

describe('an agent under watch', () => {
  test('is read to its end and concluded', async () => {
    const agent = setUp();
    await agent.print('a');
    await agent.print('b');
    await agent.end();
    expect(await agent.done).toEqual({
      exit: { code: 0, outOfMemory: false },
      conclusion: { ok: true, answer: 'b', failure: null },
      diagnostics: 'diagnostics',
    });
    expect(agent.recorded.map(({ line }) => line)).toEqual([1, 2]);
    expect(agent.progress.linesSeen).toBe(2);
    expect(agent.stops).toEqual([]);
  });

  test('that was heard in part before is understood whole, and only the rest is written', async () => {
    const agent = setUp({ progress: { linesSeen: 2 } });
    for (const text of ['a', 'b', 'c']) await agent.print(text);
    await agent.end();
    await agent.done;
    expect(agent.read).toEqual(['a', 'b', 'c']);
    expect(agent.recorded.map(({ line }) => line)).toEqual([3]);
  });

  test('is stopped at once when it is cancelled, and no reason of ours is written', async () => {
    const agent = setUp();
    agent.cancel.abort();
    expect((await agent.done).exit.code).toBe(143);
    expect(agent.stops).toEqual([10_000]);
    expect(agent.reasons).toEqual([]);
  });

  test('that is told to stop, for whatever reason, has its ways closed before', async () => {
    const cancelled = setUp();
    cancelled.cancel.abort();
    const late = setUp({ remainingMs: -5 });
    const used = setUp();
    used.limit.abort();
    for (const agent of [cancelled, late, used]) {
      await agent.done;
      expect(agent.closed[0]).toBe(0);
    }
  });

  test('is stopped when its time is over, and the reason is written before', async () => {
    const agent = setUp({ remainingMs: -5 });
    await agent.done;
    expect(agent.reasons).toEqual(['runtime_limit']);
    expect(agent.progress.stopReason).toBe('runtime_limit');
  });

  test('is stopped when its model requests are used up, also before it was watched', async () => {
    const agent = setUp();
    agent.limit.abort();
    await agent.done;
    expect(agent.reasons).toEqual(['model_requests']);
  });

  test('keeps the first reason', async () => {
    const agent = setUp({ stubborn: true });
    agent.limit.abort();
    await agent.end(137, { outputLimitReached: true });
    await agent.done;
    expect(agent.reasons).toEqual(['model_requests']);
  });

  test('that printed too much is told so', async () => {
    const agent = setUp();
    await agent.end(137, { outputLimitReached: true });
    await agent.done;
    expect(agent.reasons).toEqual(['output_flood']);
  });

  test('that an earlier process wanted to stop is stopped, for the reason of that time', async () => {
    const agent = setUp({ progress: { stopReason: 'runtime_limit' } });
    await agent.done;
    expect(agent.stops).toEqual([10_000]);
    expect(agent.reasons).toEqual([]);
  });

  test('is let go in the middle of its silence, without being stopped', async () => {
    const agent = setUp();
    await agent.print('a');
    agent.letGo.abort(new Detached('the server stops'));
    expect(agent.done).rejects.toBeInstanceOf(Detached);
    await agent.done.catch(() => {});
    expect(agent.stops).toEqual([]);
    await agent.end();
  });
});

describe('work under a signal', () => {
  test('gives what it gives', async () => {
    const { signal } = new AbortController();
    expect(await orLetGo(signal, Promise.resolve(5))).toBe(5);
    expect(orLetGo(signal, Promise.reject(new SandboxFailure('failed', 'no')))).rejects.toThrow('no');
  });

  test('is given up with the reason of the signal, before or while it goes on', async () => {
    const controller = new AbortController();
    const pending = orLetGo(controller.signal, new Promise(() => {}));
    const reason = new Detached('now');
    controller.abort(reason);
    expect(pending).rejects.toBe(reason);
    expect(orLetGo(controller.signal, new Promise(() => {}))).rejects.toBe(reason);
  });
});
