/** Where a command reads from and writes to. Tests pass their own. */
export interface Terminal {
  /** Writes to standard output; a line end is added. */
  out(text: string): void;
  /** Writes to standard error; a line end is added. */
  error(text: string): void;
  /** All of standard input, as text. */
  input(): Promise<string>;
}

/**
 * One word of the command line. `run` gets what follows the word and answers the exit code: 0 done, 1 refused or
 * failed, 2 called wrongly. What it throws is turned into a message by `dispatch`: `UsageError`, `ConfigError` and
 * `Fault` become one clear line, anything else is a bug and prints its stack.
 */
export interface Command {
  readonly name: string;
  /** One line for `slipway help`, without a full stop. */
  readonly summary: string;
  /** The lines that `slipway NAME --help` shows, the first of them starting with `slipway NAME`. */
  readonly usage: string;
  run(args: readonly string[], terminal: Terminal): Promise<number>;
}

/** The command was called wrongly. `message` names the word or flag that is wrong. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

/** Standard input and output of this process. */
export const processTerminal: Terminal = {
  out: (text) => process.stdout.write(`${text}\n`),
  error: (text) => process.stderr.write(`${text}\n`),
  input: () => Bun.stdin.text(),
};
