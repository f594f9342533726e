import { describe, expect, test } from 'bun:test';
import { checkFounding, slugOf } from '../../src/access/founding.ts';
import { Fault } from '../../src/kernel/fault.ts';

const valid = { ownerEmail: 'ada@example.com' };

function problems(change: object): string[] {
  try {
    checkFounding({ ...valid, ...change });
    return [];
  } catch (error) {
    if (!(error instanceof Fault)) throw error;
    return (error.issues ?? []).map((issue) => issue.path.join('.'));
  }
}

test('what is left out gets its usual value, the password a random one', () => {
  const checked = checkFounding(valid);
  expect(checked).toMatchObject({
    ownerName: 'ada',
    organisation: 'My organisation',
    workspace: 'Main',
    project: 'Default',
  });
  expect(checked.ownerPassword).toMatch(/^[0-9A-Za-z]{24}$/);
  expect(checkFounding(valid).ownerPassword).not.toBe(checked.ownerPassword);
});

test('names are trimmed, the e-mail address is kept in lower case, the password as it is', () => {
  const given = { ownerEmail: ' Ada@Example.COM ', ownerPassword: ' spaced  out ', workspace: ' Core ' };
  expect(checkFounding(given)).toMatchObject({
    ownerEmail: 'ada@example.com',
    ownerPassword: ' spaced  out ',
    workspace: 'Core',
  });
});

describe('an e-mail address', () => {
  test.each(['a@b', 'a.b+c@d-e.example', "o'neil@example.com", 'ü@bücher.example', `${'a'.repeat(64)}@b.c`])(
    '%s is taken',
    (ownerEmail) => expect(problems({ ownerEmail })).toEqual([]),
  );
  test.each([
    '',
    ' ',
    'a',
    '@b',
    'a@',
    'a@b@c',
    'a b@c',
    'a@b..c',
    'a@.b',
    'a@b\n.c',
    '<a@b>',
    `${'a'.repeat(65)}@b.c`,
    `a@${'b'.repeat(253)}`,
    'a\0@b',
  ])('%p is refused', (ownerEmail) => expect(problems({ ownerEmail })).toEqual(['ownerEmail']));
});

test.each(['', '1234567', 'x'.repeat(1025), 'tab\tinside', 'nul\0inside'])(
  'the password %# is refused',
  (ownerPassword) => expect(problems({ ownerPassword })).toEqual(['ownerPassword']),
);

test('everything that is wrong is named at once', () => {
  const change = {
    ownerEmail: 'x',
    ownerPassword: 'x',
    organisation: ' ',
    workspace: 'w'.repeat(121),
    project: 'a\nb',
  };
  expect(problems(change)).toEqual(['ownerEmail', 'ownerPassword', 'organisation', 'workspace', 'project']);
});

test.each([
  ['Main', 'main'],
  ['  Crème & Brûlée GmbH ', 'creme-brulee-gmbh'],
  ['--a__b--', 'a-b'],
  ['日本', 'otherwise'],
  [`${'a'.repeat(47)} bc`, 'a'.repeat(47)],
])('the slug of %p is %s', (name, slug) => expect(slugOf(name, 'otherwise')).toBe(slug));
