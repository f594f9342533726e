import { expect, test } from 'bun:test';
import { LeaseLost } from '../../src/runner/failure.ts';
import { createRecorder } from '../../src/runner/recorder.ts';
import { scrubber } from '../../src/runner/scrub.ts';
import { createLive } from '../../src/runs/live.ts';
import type { Progress } from '../../src/runs/queue.ts';
import type { NewRunEvent } from '../../src/runs/schema.ts';

const message = (text: string): NewRunEvent => ({ type: 'message', data: { text } });

/** A recorder on a queue whose commits wait until they are let through. */
function setUp(answer: () => boolean = () => true) {
  const commits: { progress: Progress; texts: string[] }[] = [];
  const gates: PromiseWithResolvers<void>[] = [];
  const raw: string[] = [];
  const broken: unknown[] = [];
  const recorder = createRecorder({
    queue: {
      async progress(_id, _token, progress, events) {
        const gate = Promise.withResolvers<void>();
        gates.push(gate);
        await gate.promise;
        const held = answer();
        if (held) commits.push({ progress, texts: events.map((event) => JSON.stringify(event.data)) });
        return held;
      },
    },
    live: createLive(),
    clock: () => 0,
    run: { id: 'run', leaseToken: 1 },
    scrubber: scrubber([{ value: 'hunter22', placeholder: 'ph_x' }]),
    onBroken: (error) => broken.push(error),
  });
  recorder.keepRaw({ lines: 1, append: async (lines) => void raw.push(...lines), close: async () => {} });
  const letAllThrough = async () => {
    const done = recorder.flush();
    for (let settled = false; !settled; ) {
      for (const gate of gates) gate.resolve();
      settled = await Promise.race([
        done.then(
          () => true,
          () => true,
        ),
        Promise.resolve(false).then(() => false),
      ]);
    }
    return done;
  };
  return { recorder, commits, raw, broken, letAllThrough };
}

test('what arrives while a commit is under way goes into the next one together, in order', async () => {
  const { recorder, commits, letAllThrough } = setUp();
  recorder.add([message('a')]);
  recorder.add([message('b')], { phase: 'agent' });
  recorder.add([message('c')]);
  await letAllThrough();
  expect(commits.flatMap(({ texts }) => texts)).toEqual(['{"text":"a"}', '{"text":"b"}', '{"text":"c"}']);
  expect(commits.length).toBeLessThan(3);
  expect(commits.some(({ progress }) => progress.phase === 'agent')).toBe(true);
});

test('no secret is written, neither as an event nor as a raw line', async () => {
  const { recorder, commits, raw, letAllThrough } = setUp();
  const written = recorder.line({ number: 2, text: 'got hunter22' }, [message('got hunter22')]);
  await letAllThrough();
  await written;
  expect(JSON.stringify([commits, raw])).not.toContain('hunter22');
  expect(raw).toEqual(['got ph_x']);
  expect(commits.at(-1)?.progress.linesSeen).toBe(2);
});

test('a line that the raw file has already is not written to it again', async () => {
  const { recorder, raw, letAllThrough } = setUp();
  const written = recorder.line({ number: 1, text: 'old' }, []);
  await letAllThrough();
  await written;
  expect(raw).toEqual([]);
});

test('a lost lease ends the writing and is told to whoever waits', async () => {
  const { recorder, broken, letAllThrough } = setUp(() => false);
  recorder.add([message('a')]);
  expect(letAllThrough()).rejects.toBeInstanceOf(LeaseLost);
  await letAllThrough().catch(() => {});
  expect(broken).toHaveLength(1);
});
