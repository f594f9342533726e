import { expect, test } from 'bun:test';
import { type EgressLimits, usualLimits, watchWires } from '../../src/egress/limits.ts';
import { Refusal } from '../../src/egress/refusal.ts';
import { Wire } from '../../src/egress/wire.ts';

const wireOf = () => new Wire({ write: (bytes) => bytes.length, end() {}, terminate() {}, pause() {}, resume() {} });

function watched(limits: Partial<EgressLimits>) {
  const time = { now: 0 };
  return { time, watch: watchWires({ ...usualLimits, ...limits }, () => time.now) };
}

test('an idle connection to an origin ends before the one of its client, each with the reason', () => {
  const { time, watch } = watched({ idleMs: 60_000, sweepMs: 1_000 });
  const [client, upstream] = [wireOf(), wireOf()];
  watch.client(client);
  watch.upstream(upstream);
  time.now = 59_999;
  watch.sweep();
  expect([upstream.closed, client.closed]).toEqual([false, false]);
  time.now = 60_000;
  watch.sweep();
  expect([upstream.closed, client.closed]).toEqual([true, false]);
  expect(upstream.endedFor?.code).toBe('upstream_idle');
  time.now = 67_000;
  watch.sweep();
  expect(client.endedFor?.code).toBe('upstream_idle');
});

test.each(['in', 'out'] as const)('a byte %s keeps a connection, whichever way it went', (way) => {
  const { time, watch } = watched({ idleMs: 60_000 });
  const upstream = wireOf();
  watch.upstream(upstream);
  for (let round = 1; round <= 5; round++) {
    time.now = round * 59_000;
    if (way === 'in') upstream.receive(Buffer.from('x'));
    else upstream.write(Buffer.from('x'));
    watch.sweep();
  }
  expect(upstream.closed).toBe(false);
});

test('a connection that waits for a deadline, or whose bytes are read elsewhere, is not idle', () => {
  const { time, watch } = watched({ idleMs: 60_000 });
  const [waiting, raw] = [wireOf(), wireOf()];
  waiting.deadlineAt = 100_000;
  raw.mute();
  watch.client(waiting);
  watch.client(raw);
  time.now = 99_999;
  watch.sweep();
  expect([waiting.closed, raw.closed]).toEqual([false, false]);
  time.now = 100_000;
  watch.sweep();
  expect(waiting.closed).toBe(true);
  expect(waiting.endedFor).toBeNull();
});

test('bytes count over all connections of a run, those that are closed already included', () => {
  const { watch } = watched({ maxBytesUp: 100 });
  const [first, second] = [wireOf(), wireOf()];
  watch.upstream(first);
  first.write(Buffer.alloc(60));
  first.destroy();
  watch.sweep();
  watch.refuseUsedUp();
  watch.upstream(second);
  second.write(Buffer.alloc(39));
  watch.refuseUsedUp();
  second.write(Buffer.alloc(1));
  expect(() => watch.refuseUsedUp()).toThrow(Refusal);
  expect(second.closed).toBe(true);
  expect(second.endedFor?.code).toBe('byte_limit');
});

test("a client's own bytes are not counted a second time, and without a limit none are", () => {
  const { watch } = watched({ maxBytesDown: 100 });
  const client = wireOf();
  watch.client(client);
  client.receive(Buffer.alloc(1000));
  watch.sweep();
  watch.refuseUsedUp();
  const unlimited = watched({});
  const upstream = wireOf();
  unlimited.watch.upstream(upstream);
  upstream.receive(Buffer.alloc(100_000));
  unlimited.watch.sweep();
  unlimited.watch.refuseUsedUp();
  expect(upstream.closed).toBe(false);
});
