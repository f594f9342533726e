import path from 'node:path';
import { setupPages } from '../app/setup.ts';
import { compose, type Service } from '../compose.ts';
import { readConfig } from '../config.ts';
import { takeLock } from '../db/lock.ts';
import { Fault } from '../kernel/fault.ts';
import { jsonLog, type Log } from '../kernel/log.ts';
import { readArguments } from './arguments.ts';
import type { Command, Terminal } from './command.ts';
import { openData } from './data.ts';
import { toldToStop } from './signals.ts';

/** Requests under way get this long when the server stops. */
const stopGraceMs = 10_000;
/** How often old workspaces are looked for. */
const tidyEveryMs = 10 * 60_000;

const usage = `slipway serve [--data-dir DIR] [--listen HOST:PORT] [--public-url URL]

  --data-dir DIR        where everything is kept (SLIPWAY_DATA_DIR; otherwise .slipway in your home directory)
  --listen HOST:PORT    where to listen (SLIPWAY_LISTEN; otherwise 127.0.0.1:4800)
  --public-url URL      under which address people and agents reach the server (SLIPWAY_PUBLIC_URL)`;

const options = {
  'data-dir': { type: 'string' },
  listen: { type: 'string' },
  'public-url': { type: 'string' },
} as const;

export const command: Command = {
  name: 'serve',
  summary: 'Run the server',
  usage,
  async run(args, terminal) {
    const { values } = readArguments(args, options);
    const config = readConfig({
      dataDir: values['data-dir'],
      listen: values.listen,
      publicUrl: values['public-url'],
    });
    const log = jsonLog();
    const data = await openData(config);
    const lock = takeLock(path.join(config.dataDir, 'server.lock'));
    if (!lock) {
      await data.close();
      throw new Fault(
        'conflict',
        'data_directory_in_use',
        'Another server uses this data directory. Stop it, or name another with --data-dir.',
      );
    }
    const setup = setupPages({
      initialise: (founding) => service.access.initialise(founding),
      publicUrl: config.publicUrl,
      isSetUp: () => service.access.isSetUp(),
    });
    const service = await compose(config, data, { log, pages: setup.pages });
    try {
      const listening = await service.server.listen(config.listen);
      const address = config.publicUrl ?? listening.url;
      terminal.out(`Slipway listens on ${listening.url}`);
      if (!(await service.access.isSetUp())) {
        terminal.out(`It is not set up yet. Open this link once to do so: ${new URL(setup.link, address).href}`);
      }
      const told = toldToStop();
      const starting = service.runner.start();
      const background = setInterval(() => void tidy(service, log), tidyEveryMs);
      // What can wait comes after the first answers: it needs the engine, whose client takes a while to load.
      void starting.then(async () => {
        const health = await service.sandbox.check();
        if (!health.ok) terminal.out(`Runs cannot start yet. ${health.reason}`);
        else await prove(service, terminal, log);
        await tidy(service, log);
      });
      await Promise.race([told, starting.then(() => told)]);
      clearInterval(background);
      await listening.stop(stopGraceMs);
    } finally {
      await service.close();
      await data.close();
      lock.release();
    }
    return 0;
  },
};

/** Looks at a sandbox from inside before a run has to wait for that. */
async function prove({ selfTest }: Service, terminal: Terminal, log: Log): Promise<void> {
  try {
    const { problem } = await selfTest.result();
    if (problem !== null) terminal.out(`Runs cannot start. ${problem}`);
  } catch (error) {
    log.warn('a sandbox could not be looked at from inside yet', { reason: String(error) });
  }
}

const tidy = ({ reap }: Service, log: Log): Promise<unknown> =>
  reap().catch((error) => log.warn('old workspaces were not removed', { reason: String(error) }));
