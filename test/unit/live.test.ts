import { expect, test } from 'bun:test';
import { eventStream, type LiveEvent } from '../../src/http/live.ts';

/** A source that gives what is pushed, and tells when it was asked to end. */
function pushed() {
  const ended = Promise.withResolvers<void>();
  const waiting: ((result: IteratorResult<LiveEvent>) => void)[] = [];
  const source: AsyncIterable<LiveEvent> = {
    [Symbol.asyncIterator]: () => ({
      next: () => new Promise((resolve) => waiting.push(resolve)),
      async return() {
        ended.resolve();
        return { done: true, value: undefined };
      },
    }),
  };
  const push = (value: LiveEvent) => waiting.shift()?.({ done: false, value });
  return { source, push, ended: ended.promise, asked: () => waiting.length };
}

function reading(source: AsyncIterable<LiveEvent>, heartbeatMs: number) {
  const stopping = new AbortController();
  const reader = eventStream(source, { heartbeatMs, signal: stopping.signal }).getReader();
  const read = async () => {
    const { done, value } = await reader.read();
    return done ? undefined : new TextDecoder().decode(value);
  };
  return { reader, read, stop: () => stopping.abort() };
}

test('silence is filled with heartbeats, and no event is lost or doubled by them', async () => {
  const { source, push, asked } = pushed();
  const { read, reader } = reading(source, 1);
  expect(await read()).toBe('retry: 2000\n\n');
  expect(await read()).toBe(': heartbeat\n\n');
  expect(await read()).toBe(': heartbeat\n\n');
  expect(asked()).toBe(1);
  push({ id: 7, event: 'message', data: { text: 'a\nb' } });
  expect(await read()).toBe('id: 7\nevent: message\ndata: {"text":"a\\nb"}\n\n');
  expect(await read()).toBe(': heartbeat\n\n');
  await reader.cancel();
});

test('the source is told to end when the reader leaves', async () => {
  const { source, ended } = pushed();
  const { read, reader } = reading(source, 60_000);
  await read();
  await reader.cancel();
  await ended;
});

test('an abort ends the stream though the source still waits, and tells the source', async () => {
  const { source, ended } = pushed();
  const { read, stop } = reading(source, 60_000);
  await read();
  const end = read();
  stop();
  expect(await end).toBeUndefined();
  await ended;
});

test('the source is asked only when something is read', async () => {
  const { source, asked } = pushed();
  const { read, reader } = reading(source, 60_000);
  await read();
  expect(asked()).toBe(0);
  await reader.cancel();
});
