import { describe, expect, test } from 'bun:test';
import type { Harness, HarnessConclusion, HarnessSignal, HarnessTurn } from '../../src/harness/harness.ts';
import { FailureCategory, type NewRunEvent, RunEventType } from '../../src/runs/schema.ts';

/** A recorded stream of the program, and what it means. */
export interface HarnessFixture {
  readonly name: string;
  readonly lines: readonly string[];
  readonly exitCode: number;
  readonly sessionId: string;
  readonly events: readonly NewRunEvent[];
  readonly conclusion: HarnessConclusion;
}

const turn: HarnessTurn = {
  prompt: 'Mend the failing test',
  systemPrompt: 'You are in a sandbox',
  model: 'gpt-5.4',
  provider: 'openai',
  maxOutputTokens: 32_000,
  sessionId: null,
  gatewayUrl: 'http://127.0.0.1:3129',
  workingDirectory: '/workspace/repository',
};

/** Reads the lines in order and keeps everything that was signalled. */
function readAll(harness: Harness, lines: readonly string[]) {
  const reader = harness.reader();
  const signals: HarnessSignal[] = lines.flatMap((line) => reader.read(line));
  return {
    events: signals.flatMap((signal) => (signal.kind === 'event' ? [signal.event] : [])),
    sessions: signals.flatMap((signal) => (signal.kind === 'session' ? [signal.sessionId] : [])),
    conclude: (exitCode: number) => reader.conclude(exitCode),
  };
}

/** The promises of the harness port: what each fixture means, and that no line whatever breaks the reader. */
export function harnessConformance(open: () => Harness, fixtures: readonly HarnessFixture[]): void {
  const harness = open();

  describe(`harness port: ${harness.id}`, () => {
    for (const fixture of fixtures) {
      test(`${fixture.name} is read as its events, session and conclusion`, () => {
        const { events, sessions, conclude } = readAll(harness, fixture.lines);
        expect(events).toEqual([...fixture.events]);
        expect(sessions).toEqual([fixture.sessionId]);
        expect(conclude(fixture.exitCode)).toEqual(fixture.conclusion);
      });
    }

    test('readers do not share what they have read', () => {
      const [fixture] = fixtures;
      if (!fixture) throw new Error('The suite needs a fixture');
      readAll(harness, fixture.lines);
      const conclusion = harness.reader().conclude(1);
      expect(conclusion.answer).toBeNull();
      expect(conclusion.ok).toBe(false);
    });

    test('no mutation of a line makes the reader throw or signal anything malformed', () => {
      const random = seeded(20_261_121);
      const lines = fixtures.flatMap((fixture) => fixture.lines);
      for (let round = 0; round < 200; round += 1) {
        const mutated = Array.from({ length: 20 }, () => mutate(pick(lines, random) ?? '', random));
        const { events, sessions, conclude } = readAll(harness, mutated);
        for (const event of events) expectSound(event);
        for (const session of sessions) expect(session).toMatch(/^[0-9A-Za-z][\w-]{0,127}$/);
        const { ok, failure } = conclude(Math.floor(random() * 3));
        expect(failure === null).toBe(ok);
        if (failure) expect(FailureCategory.options).toContain(failure.category);
      }
    });

    test('garbage is warned of a few times, not for every line', () => {
      const { events } = readAll(
        harness,
        Array.from({ length: 500 }, (_, index) => `thread main panicked ${index}`),
      );
      expect(events.length).toBeGreaterThan(0);
      expect(events.length).toBeLessThanOrEqual(3);
      expect(events.every((event) => event.type === 'warning')).toBe(true);
    });

    test('an exit with status 0 and no word of the program is handled', () => {
      const { ok, answer } = harness.reader().conclude(0);
      expect(answer).toBeNull();
      expect(typeof ok).toBe('boolean');
    });

    test('launch is the same for the same turn and puts no prompt into the arguments', () => {
      const prompt = 'p'.repeat(400_000);
      const launch = harness.launch({ ...turn, prompt });
      expect(harness.launch({ ...turn, prompt })).toEqual(launch);
      expect(launch.command.every((argument) => argument.length < 4096)).toBe(true);
      expect(launch.files.some((file) => file.content.includes(prompt))).toBe(true);
      for (const file of launch.files) expect(file.path).toMatch(/^\/(state|workspace)\//);
    });

    test('launch of a follow-up names the session that it continues', () => {
      const first = JSON.stringify(harness.launch(turn));
      const second = JSON.stringify(harness.launch({ ...turn, sessionId: '01a1fc7d-ab53-7760-a000-76d224a817cd' }));
      expect(first).not.toContain('01a1fc7d-ab53');
      expect(second).toContain('01a1fc7d-ab53-7760-a000-76d224a817cd');
    });
  });
}

/** Text of a failure and fields of the kinds that the application reads are there and of the right types. */
function expectSound(event: NewRunEvent): void {
  expect(RunEventType.options).toContain(event.type);
  switch (event.type) {
    case 'message':
    case 'reasoning':
      expect(typeof event.data.text).toBe('string');
      return;
    case 'warning':
    case 'error':
      expect(typeof event.data.message).toBe('string');
      return;
    case 'tool_call':
      expect(typeof event.data.callId).toBe('string');
      expect(typeof event.data.tool).toBe('string');
      expect(event.data.input).not.toBeUndefined();
      return;
    case 'tool_result':
      expect(typeof event.data.callId).toBe('string');
      expect(typeof event.data.ok).toBe('boolean');
      expect(typeof event.data.output).toBe('string');
      expect(event.data.exitCode === null || Number.isInteger(event.data.exitCode)).toBe(true);
      return;
    case 'file_change':
      for (const change of event.data.changes) {
        expect(typeof change.path).toBe('string');
        expect(['add', 'update', 'delete']).toContain(change.kind);
      }
      return;
    default:
      throw new Error(`A harness does not signal ${event.type}`);
  }
}

/** Numbers from 0 to 1, the same for the same seed (mulberry32). */
function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

const pick = <T>(from: readonly T[], random: () => number): T | undefined => from[Math.floor(random() * from.length)];

const strangers: readonly unknown[] = [
  null,
  0,
  -1.5,
  true,
  '',
  'text',
  [],
  {},
  [null],
  [[{}]],
  { message: {} },
  '\ud800',
];

function mutate(line: string, random: () => number): string {
  const kind = random();
  if (kind < 0.15) return line.slice(0, Math.floor(random() * line.length));
  if (kind < 0.25) {
    const at = Math.floor(random() * line.length);
    return `${line.slice(0, at)}${String.fromCharCode(Math.floor(random() * 65_536))}${line.slice(at + 1)}`;
  }
  if (kind < 0.3) return JSON.stringify(pick(strangers, random));
  if (kind < 0.4) return line;
  return JSON.stringify(replaceOne(JSON.parse(line), random));
}

/** The value with one field, at any depth, replaced by a stranger or taken away. */
function replaceOne(value: unknown, random: () => number): unknown {
  if (typeof value !== 'object' || value === null || random() < 0.15) return pick(strangers, random);
  const copy: Record<string, unknown> = { ...(value as Record<string, unknown>) };
  const key = pick(Object.keys(copy), random);
  if (key === undefined) return pick(strangers, random);
  if (random() < 0.15) delete copy[key];
  else copy[key] = replaceOne(copy[key], random);
  return Array.isArray(value) ? Object.values(copy) : copy;
}
