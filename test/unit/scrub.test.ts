import { expect, test } from 'bun:test';
import { scrubber } from '../../src/runner/scrub.ts';

const { text, deep } = scrubber([
  { value: 'sk-real-value', placeholder: 'sk-placeholder' },
  { value: 'sk-real-value-and-more', placeholder: 'sk-longer' },
  { value: 'line\n"quoted"', placeholder: 'ph_lines' },
  { value: 'abc', placeholder: 'never' },
]);

test('a real value becomes its placeholder wherever it stands', () => {
  expect(text('a sk-real-value b sk-real-value')).toBe('a sk-placeholder b sk-placeholder');
});

test('a value that holds another one is hidden whole', () => {
  expect(text('sk-real-value-and-more')).toBe('sk-longer');
});

test('a value is found in the form that JSON gives it', () => {
  expect(text(JSON.stringify({ a: 'line\n"quoted"' }))).toBe('{"a":"ph_lines"}');
});

test('values are found at any depth, in keys too, and other types stay as they are', () => {
  expect<unknown>(deep({ a: [1, null, true, { 'sk-real-value': 'x sk-real-value' }] })).toEqual({
    a: [1, null, true, { 'sk-placeholder': 'x sk-placeholder' }],
  });
});

test('a value too short to be told from chance is left', () => {
  expect(text('abc')).toBe('abc');
});

test('a placeholder with a dollar sign is put in as it is', () => {
  expect(scrubber([{ value: 'secret', placeholder: '$&$1' }]).text('a secret')).toBe('a $&$1');
});

test('a value that is learnt later is hidden, too, and the earlier ones stay hidden', () => {
  const { text, deep, learn } = scrubber([{ value: 'first-value', placeholder: 'ph_1' }]);
  learn([{ value: 'first-value-and-more', placeholder: 'ph_2' }]);
  learn([{ value: 'abc', placeholder: 'never' }]);
  expect(text('first-value first-value-and-more abc')).toBe('ph_1 ph_2 abc');
  expect(deep(['first-value-and-more'])).toEqual(['ph_2']);
});
