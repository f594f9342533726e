import { describe, expect, test } from 'bun:test';
import { readArguments } from '../../src/cli/arguments.ts';
import { type Command, UsageError } from '../../src/cli/command.ts';
import { dispatch } from '../../src/cli/dispatch.ts';
import { command as version } from '../../src/cli/version.ts';
import { ConfigError } from '../../src/config.ts';
import { conflict, invalid } from '../../src/kernel/fault.ts';
import { fakeTerminal } from '../support/terminal.ts';

const failures: Record<string, Error> = {
  usage: new UsageError('--colour is missing.'),
  config: new ConfigError('SLIPWAY_LISTEN must be HOST:PORT.'),
  fault: conflict('taken', 'The name is taken'),
  issues: invalid([
    { path: ['a', '0'], message: 'Bad' },
    { path: ['b'], message: 'Worse' },
  ]),
  bug: new TypeError('undefined is not a boat'),
};

const paint: Command = {
  name: 'paint',
  summary: 'Paint the boat',
  usage: 'slipway paint --colour NAME [WORD]',
  async run(args, terminal) {
    const failure = failures[args[0] ?? ''];
    if (failure) throw failure;
    const { values } = readArguments(args, { colour: { type: 'string', short: 'c' }, twice: { type: 'boolean' } });
    terminal.out(`painted ${values.colour}`);
    return 0;
  },
};

async function slipway(...argv: string[]) {
  const terminal = fakeTerminal();
  const loaded: string[] = [];
  const load = (command: Command) => async () => {
    loaded.push(command.name);
    return { command };
  };
  const code = await dispatch(argv, { paint: load(paint), version: load(version) }, terminal);
  return { code, loaded, stdout: terminal.stdout, stderr: terminal.stderr };
}

test('a word runs its command and loads no other', async () => {
  expect(await slipway('paint', '--colour', 'red')).toEqual({
    code: 0,
    loaded: ['paint'],
    stdout: 'painted red\n',
    stderr: '',
  });
});

test.each([['version'], ['--version']])('%s prints the version', async (word) => {
  expect(await slipway(word)).toMatchObject({ code: 0, stdout: 'slipway 0.1.0\n' });
});

describe('help', () => {
  test.each([['help'], ['--help'], ['-h']])('%s lists the commands', async (word) => {
    const { code, stdout } = await slipway(word);
    expect(code).toBe(0);
    expect(stdout).toContain('paint    Paint the boat');
  });

  test.each([[['help', 'paint']], [['paint', '--help']], [['paint', '--twice', '-h']]])(
    '%p shows the usage',
    async (argv) => {
      expect(await slipway(...argv)).toMatchObject({ code: 0, stdout: `Paint the boat.\n\n${paint.usage}\n` });
    },
  );

  test('is given on standard error when no word was', async () => {
    const { code, stdout, stderr } = await slipway();
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
    expect(stderr).toContain('Paint the boat');
  });
});

describe('a wrong call ends with 2, names what is wrong and shows the usage', () => {
  test.each([
    [['launch'], 'Unknown command "launch"', 'slipway COMMAND'],
    [['toString'], 'Unknown command "toString"', 'slipway COMMAND'],
    [['--color'], 'Unknown flag "--color"', 'slipway COMMAND'],
    [['help', 'launch'], 'Unknown command "launch"', 'slipway COMMAND'],
    [['paint', '--color=x'], 'Unknown flag --color.', paint.usage],
    [['paint', '-q'], 'Unknown flag -q.', paint.usage],
    [['paint', '--colour'], '--colour needs a value.', paint.usage],
    [['paint', '--colour', '--twice'], '--colour needs a value.', paint.usage],
    [['paint', '--twice=yes'], '--twice takes no value.', paint.usage],
    [['paint', 'hull'], 'Unexpected word "hull".', paint.usage],
    [['paint', 'usage'], '--colour is missing.', paint.usage],
  ])('%p', async (argv, message, usage) => {
    const { code, stdout, stderr } = await slipway(...argv);
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
    expect(stderr).toContain(message);
    expect(stderr).toContain(usage);
  });
});

describe('what a command throws ends with 1', () => {
  test.each([
    ['config', 'slipway: SLIPWAY_LISTEN must be HOST:PORT.\n'],
    ['fault', 'slipway: The name is taken\n'],
    ['issues', 'slipway: a.0: Bad; b: Worse\n'],
  ])('%s as one clear line', async (kind, stderr) => {
    expect(await slipway('paint', kind)).toMatchObject({ code: 1, stdout: '', stderr });
  });

  test('a bug with its stack', async () => {
    const { code, stderr } = await slipway('paint', 'bug');
    expect(code).toBe(1);
    expect(stderr).toContain('undefined is not a boat');
    expect(stderr).toContain('dispatch.test.ts');
  });
});

test('words that a command wants are named when they are missing', () => {
  expect(() => readArguments(['connect'], {}, ['ACTION', 'PROVIDER'])).toThrow('PROVIDER is missing.');
  expect(readArguments(['connect', 'git'], {}, ['ACTION', 'PROVIDER']).words).toEqual(['connect', 'git']);
});
