import { expect, test } from 'bun:test';
import { command } from '../../src/cli/sandbox.ts';
import { fakeTerminal } from '../support/terminal.ts';

test.each([
  [[], 'The action is missing.'],
  [['--data-dir', 'x'], 'The action is missing.'],
  [['toString'], 'Unknown action "toString".'],
  [['check', 'twice'], 'Unexpected word "twice".'],
  [['build', '--fast'], 'Unknown flag --fast.'],
])('a wrong call is refused before anything is done: %p', async (args, message) => {
  await expect(command.run(args, fakeTerminal())).rejects.toThrow(message);
});
