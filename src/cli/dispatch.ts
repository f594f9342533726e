import { ConfigError } from '../config.ts';
import { Fault } from '../kernel/fault.ts';
import { type Command, type Terminal, UsageError } from './command.ts';

/** Every command by its word. Each is imported only when it is asked for, so that none pays for the others. */
export type Commands = Readonly<Record<string, () => Promise<{ readonly command: Command }>>>;

const helpWords = new Set(['help', '--help', '-h']);

/** Runs the command that `argv` (without the program's own name) asks for. Answers the exit code; never throws. */
export async function dispatch(argv: readonly string[], commands: Commands, terminal: Terminal): Promise<number> {
  const [word, ...args] = argv;
  if (word === undefined) {
    terminal.error(await overview(commands));
    return 2;
  }
  if (helpWords.has(word)) return help(args[0], commands, terminal);
  const name = word === '--version' ? 'version' : word;
  const load = loader(commands, name);
  if (!load) return unknown(word, commands, terminal);
  const { command } = await load();
  if (asksForHelp(args)) {
    terminal.out(`${command.summary}.\n\n${command.usage}`);
    return 0;
  }
  try {
    return await command.run(args, terminal);
  } catch (error) {
    return report(error, command, terminal);
  }
}

async function help(word: string | undefined, commands: Commands, terminal: Terminal): Promise<number> {
  if (word === undefined) {
    terminal.out(await overview(commands));
    return 0;
  }
  const load = loader(commands, word);
  if (!load) return unknown(word, commands, terminal);
  const { command } = await load();
  terminal.out(`${command.summary}.\n\n${command.usage}`);
  return 0;
}

function loader(commands: Commands, name: string): Commands[string] | undefined {
  return Object.hasOwn(commands, name) ? commands[name] : undefined;
}

/** `--help` counts only before a bare `--`, after which every word is data. */
function asksForHelp(args: readonly string[]): boolean {
  const end = args.indexOf('--');
  const flags = end === -1 ? args : args.slice(0, end);
  return flags.includes('--help') || flags.includes('-h');
}

async function overview(commands: Commands): Promise<string> {
  const loaded = await Promise.all(Object.values(commands).map((load) => load()));
  const width = Math.max(...loaded.map(({ command }) => command.name.length));
  const lines = loaded.map(({ command }) => `  ${command.name.padEnd(width)}  ${command.summary}`);
  return ['Usage: slipway COMMAND [FLAGS]', '', ...lines, '', '`slipway COMMAND --help` shows the flags.'].join('\n');
}

async function unknown(word: string, commands: Commands, terminal: Terminal): Promise<number> {
  const what = word.startsWith('-') ? 'flag' : 'command';
  terminal.error(`slipway: Unknown ${what} "${word}".\n\n${await overview(commands)}`);
  return 2;
}

function report(error: unknown, command: Command, terminal: Terminal): number {
  if (error instanceof UsageError) {
    terminal.error(`slipway ${command.name}: ${error.message}\n\n${command.usage}`);
    return 2;
  }
  if (error instanceof ConfigError) {
    terminal.error(`slipway: ${error.message}`);
    return 1;
  }
  if (error instanceof Fault) {
    terminal.error(`slipway: ${faultLine(error)}`);
    return 1;
  }
  terminal.error(error instanceof Error ? (error.stack ?? error.message) : String(error));
  return 1;
}

/** A fault in one line: where it lists fields, they say more than its own message. */
function faultLine(fault: Fault): string {
  if (!fault.issues || fault.issues.length === 0) return fault.message;
  return fault.issues.map((issue) => `${issue.path.join('.')}: ${issue.message}`).join('; ');
}
