import { expect, test } from 'bun:test';
import { ZodError, z } from 'zod';
import { outputFilter } from '../../src/http/output.ts';

const Trigger = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('slack'), channels: z.array(z.string()) }),
  z.object({ kind: z.literal('clock'), hour: z.int().min(0).max(23) }),
]);
const Answer = z.object({
  id: z.guid(),
  name: z.string().max(5).nullable(),
  state: z.enum(['on', 'off']),
  size: z.int(),
  share: z.number(),
  fresh: z.boolean(),
  at: z.iso.datetime(),
  note: z.string().optional(),
  triggers: z.array(Trigger),
  data: z.record(z.string(), z.unknown()),
  scalars: z.record(z.string(), z.union([z.string(), z.number()])),
  exclusions: z.array(z.string()).default([]),
});
const filter = outputFilter(Answer);

const answer = () => ({
  id: '01a1fdc3-b661-7604-83be-72e838ed7030',
  name: null as unknown,
  state: 'on' as unknown,
  size: 3 as unknown,
  share: 0.5 as unknown,
  fresh: true as unknown,
  at: '2026-11-21T11:00:00.000Z',
  triggers: [
    { kind: 'slack', channels: ['c'] },
    { kind: 'clock', hour: 6 },
  ] as unknown,
  data: { any: { thing: [1, null] } } as unknown,
  scalars: { a: 'x', b: 1 } as unknown,
  exclusions: ['x'],
});

test('an answer of the documented shape passes as the schema itself would let it pass', () => {
  expect(filter(answer())).toEqual(Answer.parse(answer()));
});

test('what is not documented stays inside, at every depth', () => {
  const secret = { secret: 'x' };
  const leaky = {
    ...answer(),
    ...secret,
    triggers: [
      { kind: 'slack', channels: ['c'], ...secret },
      { kind: 'clock', hour: 6, channels: ['c'] },
    ],
  };
  expect(filter(leaky)).toEqual(Answer.parse(answer()));
  expect(JSON.stringify(filter(leaky))).not.toContain('secret');
});

test('what was given is not changed', () => {
  const given = Object.freeze({ ...answer(), secret: 'x' });
  filter(given);
  expect(given.secret).toBe('x');
});

test('an object that would write itself as JSON in its own way is written by its documented fields', () => {
  const Small = z.object({ id: z.string() });
  class Own {
    readonly id = '1';
    toJSON() {
      return { secret: 'x' };
    }
  }
  expect(JSON.stringify(outputFilter(Small)(new Own()))).toBe('{"id":"1"}');
  const own = { id: '1', toJSON: () => ({ secret: 'x' }) };
  expect(JSON.stringify(outputFilter(Small)(own))).toBe('{"id":"1"}');
});

test('an optional field may be absent, and a default is put in', () => {
  const { exclusions, ...rest } = answer();
  expect(exclusions).toEqual(['x']);
  expect(filter(rest)).toEqual({ ...rest, exclusions: [] });
  expect(filter({ ...answer(), note: undefined })).toEqual(answer());
  expect(filter({ ...answer(), note: 'n' })).toEqual({ ...answer(), note: 'n' });
});

test('formats and limits are not looked at again', () => {
  const old = { ...answer(), id: 'no guid', at: 'yesterday', name: null, triggers: [{ kind: 'clock', hour: 99 }] };
  expect(filter({ ...old, note: 'n' })).toMatchObject({ id: 'no guid', triggers: [{ hour: 99 }] });
  const long = { ...answer(), name: 'longer than it may be sent' };
  expect(filter(long)).toEqual(long);
});

test.each<[string, object, PropertyKey[]]>([
  ['text', { id: 7 }, ['id']],
  ['a field that is missing', { id: undefined }, ['id']],
  ['null', { state: null }, ['state']],
  ['a word that is none of the documented', { state: 'broken' }, ['state']],
  ['a fraction', { size: 0.5 }, ['size']],
  ['no number', { share: Number.NaN }, ['share']],
  ['an endless number', { share: Number.POSITIVE_INFINITY }, ['share']],
  ['a number for a flag', { fresh: 1 }, ['fresh']],
  ['a list', { triggers: {} }, ['triggers']],
  ['an option that does not exist', { triggers: [{ kind: 'mail' }] }, ['triggers', 0, 'kind']],
  ['a field of an option', { triggers: [{ kind: 'slack', channels: [1] }] }, ['triggers', 0, 'channels', 0]],
  ['a list for a record', { data: [] }, ['data']],
  ['a value of a record', { scalars: { a: {} } }, ['scalars', 'a']],
  ['a list for an optional text', { note: [] }, ['note']],
])('what is not of its kind is refused by the schema, with its place: %s', (_, wrong, place) => {
  const failure = (() => {
    try {
      return filter({ ...answer(), ...wrong });
    } catch (error) {
      return error;
    }
  })();
  expect(failure).toBeInstanceOf(ZodError);
  expect((failure as ZodError).issues[0]?.path).toEqual(place);
});

test.each([[null], [undefined], [[]], ['text']])('%p is no object', (value) => {
  expect(() => filter(value)).toThrow(ZodError);
});

test('schemas that change what they read, or forbid what they do not know, are left to do so', () => {
  expect(outputFilter(z.object({ n: z.string().transform(Number) }))({ n: '7' })).toEqual({ n: 7 });
  expect(outputFilter(z.object({ n: z.coerce.string() }))({ n: 7 })).toEqual({ n: '7' });
  expect(() => outputFilter(z.strictObject({ n: z.string() }))({ n: '7', more: 1 })).toThrow(ZodError);
  const loose = outputFilter(z.looseObject({ n: z.string() }));
  expect(loose({ n: '7', more: 1 })).toEqual({ n: '7', more: 1 });
});
