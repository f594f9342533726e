import { expect, test } from 'bun:test';
import { type Replacement, Replacer } from '../../src/egress/replace.ts';

const seed = 20261121;

/** A small generator of our own, so that a failing case can be run again. */
function randomFrom(start: number): (below: number) => number {
  let state = start;
  return (below) => {
    state = (Math.imul(state, 1103515245) + 12345) & 0x7fffffff;
    return (state >>> 8) % below;
  };
}

const pairs = (entries: Record<string, string>): Replacement[] =>
  Object.entries(entries).map(([needle, replacement]) => ({
    needle: Buffer.from(needle),
    replacement: Buffer.from(replacement),
  }));

/** The promise in its plainest form: leftmost first, longest at one place, one pass. */
function replaceWhole(text: string, entries: Record<string, string>): string {
  const needles = Object.keys(entries).sort((a, b) => b.length - a.length);
  let result = '';
  for (let at = 0; at < text.length; ) {
    const needle = needles.find((candidate) => text.startsWith(candidate, at));
    result += needle === undefined ? text[at] : entries[needle];
    at += needle?.length ?? 1;
  }
  return result;
}

test('any chunking of a stream gives what replacing in the whole text gives', () => {
  const sets: Record<string, string>[] = [
    { 'sk-MARKAAAA': 'VALUE', ph_MARKBBBB: 'a value that is longer', ph_MARKBBBC: '' },
    { aab: '1', aabaab: '2', ab: '3', b: '4' },
    { abcabd: 'X', bcab: 'Y', cabx: 'Z' },
  ];
  const random = randomFrom(seed);
  for (let round = 0; round < 6000; round++) {
    const entries = sets[round % sets.length] ?? {};
    const needles = Object.keys(entries);
    let text = '';
    for (let count = random(10); count > 0; count--) {
      const needle = needles[random(needles.length)] ?? '';
      text += random(2) === 0 ? needle : needle.slice(random(3), random(needle.length + 1)) + 'abcx'[random(4)];
    }
    const replacer = new Replacer(pairs(entries));
    let streamed = '';
    for (let at = 0; at < text.length; ) {
      const size = 1 + random(7);
      streamed += replacer.push(Buffer.from(text.slice(at, at + size))).toString();
      at += size;
    }
    streamed += replacer.finish().toString();
    if (streamed !== replaceWhole(text, entries)) {
      throw new Error(`seed ${seed}, round ${round}: ${JSON.stringify({ text, entries, streamed })}`);
    }
  }
});

test('an event that cannot be the beginning of a value is passed on at once', () => {
  const replacer = new Replacer(pairs({ 'sk-real-value': 'placeholder' }));
  expect(replacer.push(Buffer.from('data: hello\n\n')).toString()).toBe('data: hello\n\n');
  expect(replacer.push(Buffer.from('data: sk-')).toString()).toBe('data: ');
  expect(replacer.push(Buffer.from('ip\n\n')).toString()).toBe('sk-ip\n\n');
});

test('what was held back can be taken over by another one', () => {
  const old = new Replacer(pairs({ 'sk-real': 'old' }));
  expect(old.push(Buffer.from('x sk-re')).toString()).toBe('x ');
  const held = old.release();
  expect(held.toString()).toBe('sk-re');
  expect(old.finish().toString()).toBe('');
  const now = new Replacer(pairs({ 'sk-real': 'new' }));
  expect(now.push(Buffer.concat([held, Buffer.from('al y')])).toString()).toBe('new y');
});

test('it tells which needles have occurred', () => {
  const replacer = new Replacer(pairs({ one: '1', two: '2' }));
  replacer.push(Buffer.from('xx tw'));
  expect([...replacer.found]).toEqual([]);
  replacer.push(Buffer.from('o'));
  expect([...replacer.found]).toEqual([1]);
});
