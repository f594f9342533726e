import { randomUUID } from 'node:crypto';
import { type Config, ConfigError, readConfig } from '../config.ts';
import { jsonLog } from '../kernel/log.ts';
import { openDoors } from '../runner/doors.ts';
import { dockerSandbox } from '../sandbox/docker.ts';
import { type Inside, lookInside } from '../sandbox/docker-check.ts';
import { agentUid } from '../sandbox/docker-files.ts';
import { imageReference } from '../sandbox/image.ts';
import { buildImage } from '../sandbox/image-build.ts';
import { SandboxFailure } from '../sandbox/sandbox.ts';
import { readArguments } from './arguments.ts';
import { type Command, type Terminal, UsageError } from './command.ts';

const usage = `slipway sandbox build [--data-dir DIR]
slipway sandbox check [--data-dir DIR]

  build             build the image that agents work in, where it is not there
  check             start a sandbox and look at it from inside: it must have no network but the door to the server
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
    log: jsonLog(terminal.error),
  });
  const health = await sandbox.check();
  if (!health.ok) throw new ConfigError(health.reason);
  terminal.out(`Engine      ${health.engine}`);
  terminal.out(`Image       ${image}`);
  const doors = openDoors(config.dataDir);
  const turn = ['sandbox-check', process.pid] as const;
  try {
    const inside = await lookInside(sandbox, await doors.make(...turn), config.sandboxLimits);
    for (const line of described(inside)) terminal.out(line);
    const problems = problemsOf(inside);
    for (const problem of problems) terminal.error(`slipway: ${problem}`);
    if (problems.length > 0) return 1;
    terminal.out('The sandbox has no network but the door to the server.');
    return 0;
  } finally {
    await doors.remove(...turn);
    await sandbox.close();
  }
}

const described = (inside: Inside): string[] => [
  `User        ${inside.uid}`,
  `Interfaces  ${inside.interfaces.join(', ')}`,
  `Internet    ${inside.reachesInternet ? 'REACHED' : 'not reached'}`,
  `Door        ${inside.reachesDoor ? 'leads to the server' : 'CLOSED'}`,
];

/** What is wrong with a sandbox, each in one sentence with the mend; empty for one that is as it should be. */
export function problemsOf(inside: Inside): string[] {
  const problems: string[] = [];
  if (inside.reachesInternet || inside.interfaces.join() !== 'lo') {
    problems.push('The sandbox has a network. Do not run agents on this engine: it ignores `network none`.');
  }
  if (inside.uid !== agentUid) {
    problems.push('The sandbox does not run as its own user. Build the image with `slipway sandbox build`.');
  }
  if (!inside.reachesDoor) {
    problems.push(
      'The door does not lead to the server. The data directory must be at the same path for the Docker engine as for the server.',
    );
  }
  return problems;
}
