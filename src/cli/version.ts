import manifest from '../../package.json' with { type: 'json' };
import { readArguments } from './arguments.ts';
import type { Command } from './command.ts';

export const command: Command = {
  name: 'version',
  summary: 'Print the version',
  usage: 'slipway version',
  async run(args, terminal) {
    readArguments(args, {});
    terminal.out(`slipway ${manifest.version}`);
    return 0;
  },
};
