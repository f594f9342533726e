import { expect, test } from 'bun:test';
import { command, problemsOf } from '../../src/cli/sandbox.ts';
import { fakeTerminal } from '../support/terminal.ts';

const right = { interfaces: ['lo'], uid: 10_001, reachesDoor: true, reachesInternet: false };

test('a sandbox with nothing but lo and its door is as it should be', () => {
  expect(problemsOf(right)).toEqual([]);
});

test.each([
  ['another interface', { interfaces: ['eth0', 'lo'] }, 'has a network'],
  ['no answer at all', { interfaces: [] }, 'has a network'],
  ['the internet', { reachesInternet: true }, 'has a network'],
  ['another user', { uid: 0 }, 'its own user'],
  ['no user', { uid: Number.NaN }, 'its own user'],
  ['a door that leads nowhere', { reachesDoor: false }, 'data directory must be at the same path'],
])('%s is a problem that names the mend', (_, what, expected) => {
  expect(problemsOf({ ...right, ...what })).toEqual([expect.stringContaining(expected)]);
});

test.each([
  [[], 'The action is missing.'],
  [['--data-dir', 'x'], 'The action is missing.'],
  [['toString'], 'Unknown action "toString".'],
  [['check', 'twice'], 'Unexpected word "twice".'],
  [['build', '--fast'], 'Unknown flag --fast.'],
])('a wrong call is refused before anything is done: %p', async (args, message) => {
  await expect(command.run(args, fakeTerminal())).rejects.toThrow(message);
});
