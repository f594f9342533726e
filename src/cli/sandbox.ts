import { randomUUID } from 'node:crypto';
import { type Config, ConfigError, readConfig } from '../config.ts';
import { jsonLog } from '../kernel/log.ts';
import { openDoors } from '../runner/doors.ts';
import { dockerSandbox } from '../sandbox/docker.ts';
import { imageReference } from '../sandbox/image.ts';
import { buildImage } from '../sandbox/image-build.ts';
import { type Attempt, SandboxFailure } from '../sandbox/sandbox.ts';
import { problemOf } from '../sandbox/self-test.ts';
import { readArguments } from './arguments.ts';
import { type Command, type Terminal, UsageError } from './command.ts';

const usage = `slipway sandbox build [--data-dir DIR]
slipway sandbox check [--data-dir DIR]

  build             build the image that agents work in, where it is not there
  check             start a sandbox and try from inside what must not be possible: every attempt with its outcome
  --data-dir DIR    where everything is kept (SLIPWAY_DATA_DIR; otherwise .slipway in your home directory)`;

const options = { 'data-dir': { type: 'string' } } as const;

type Action = (config: Config, terminal: Terminal) => Promise<number>;

const actions: Readonly<Record<string, Action>> = { build, check };

export const command: Command = {
  name: 'sandbox',
  summary: 'Build the image that agents work in, check that a sandbox has no network',
  usage,
  async run([word, ...args], terminal) {
    if (word === undefined || word.startsWith('-')) throw new UsageError('The action is missing.');
    const action = Object.hasOwn(actions, word) ? actions[word] : undefined;
    if (!action) throw new UsageError(`Unknown action "${word}".`);
    const { values } = readArguments(args, options);
    try {
      return await action(readConfig({ dataDir: values['data-dir'] }), terminal);
    } catch (error) {
      if (error instanceof SandboxFailure) throw new ConfigError(error.message, { cause: error });
      throw error;
    }
  },
};

async function build(config: Config, terminal: Terminal): Promise<number> {
  const reference = await buildImage({
    dockerHost: config.dockerHost,
    cacheDirectory: config.cacheDir,
    debianMirror: config.debianMirror,
    say: terminal.error,
  });
  terminal.out(reference);
  return 0;
}

async function check(config: Config, terminal: Terminal): Promise<number> {
  const image = config.sandboxImage ?? imageReference();
  const sandbox = dockerSandbox({
    dockerHost: config.dockerHost,
    image,
    // Of its own, so that a server that runs beside this does not take the container for one of its runs.
    installation: `check-${randomUUID().slice(0, 8)}`,
    doorVolume: config.doorVolume,
    log: jsonLog(terminal.error),
  });
  const health = await sandbox.check();
  if (!health.ok) throw new ConfigError(health.reason);
  terminal.out(`Engine      ${health.engine}`);
  terminal.out(`Image       ${image}`);
  const doors = openDoors(config.dataDir, config.doorVolume?.path);
  const turn = ['sandbox-check', process.pid] as const;
  try {
    const socketDirectory = await doors.make(...turn);
    const attempts = await sandbox.lookInside({ socketDirectory, limits: config.sandboxLimits });
    terminal.out('');
    for (const line of table(attempts)) terminal.out(line);
    const problem = problemOf(attempts);
    if (problem !== null) {
      terminal.error(`slipway: ${problem}`);
      return 1;
    }
    terminal.out('\nThe sandbox has no network but the door to the server.');
    return 0;
  } finally {
    await doors.remove(...turn);
    await sandbox.close();
  }
}

/** One line an attempt, in columns: whether it is as it should be, what was looked for, where, and what came of it. */
export function table(attempts: readonly Attempt[]): string[] {
  const rows = attempts.map(
    ({ ok, what, target, outcome }) => [ok ? 'ok' : 'BAD', what, target ?? '-', outcome] as const,
  );
  const all = [['', 'Tried from inside', 'Where', 'Outcome'] as const, ...rows];
  const widths = [0, 1, 2].map((column) => Math.max(...all.map((row) => row[column]?.length ?? 0)));
  return all.map((row) =>
    row
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join('  ')
      .trimEnd(),
  );
}
