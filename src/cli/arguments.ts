import { type ParseArgsOptionsConfig, parseArgs } from 'node:util';
import { UsageError } from './command.ts';

/**
 * Reads what follows a command's word: flags as `parseArgs` of node:util takes them, and exactly as many words as
 * `words` names. Throws `UsageError` for an unknown flag, a flag without its value, a missing or a surplus word.
 */
export function readArguments<const O extends ParseArgsOptionsConfig>(
  args: readonly string[],
  options: O,
  words: readonly string[] = [],
) {
  const parsed = parse(args, options);
  const missing = words[parsed.positionals.length];
  if (missing !== undefined) throw new UsageError(`${missing} is missing.`);
  const surplus = parsed.positionals[words.length];
  if (surplus !== undefined) throw new UsageError(`Unexpected word "${surplus}".`);
  return { values: parsed.values, words: parsed.positionals };
}

function parse<const O extends ParseArgsOptionsConfig>(args: readonly string[], options: O) {
  try {
    return parseArgs({ args: [...args], options, allowPositionals: true, strict: true });
  } catch (error) {
    throw new UsageError(problem(error), { cause: error });
  }
}

/** What parseArgs found, in one sentence. Its own text goes on about `--` and positional arguments. */
function problem(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error);
  const flag = /'(?:-\w, )?(--?[^' ]+)/.exec(message)?.[1];
  const code = (error as { code?: unknown }).code;
  if (code === 'ERR_PARSE_ARGS_UNKNOWN_OPTION' && flag !== undefined) return `Unknown flag ${flag}.`;
  if (code === 'ERR_PARSE_ARGS_INVALID_OPTION_VALUE' && flag !== undefined) {
    return message.includes('does not take') ? `${flag} takes no value.` : `${flag} needs a value.`;
  }
  return message;
}
