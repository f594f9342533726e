import { maxLineBytes, type SandboxSpec } from '../../src/sandbox/sandbox.ts';

/** What the conformance suite needs to run; each kind says what it prints and how it ends (with status 0 unless said). */
export type ConformanceProgram =
  /** Prints `hello`. */
  | { readonly kind: 'hello' }
  /** Prints `line 1`, `line 2`, … `line <count>`. */
  | { readonly kind: 'lines'; readonly count: number }
  /** Prints `first`, a line end, and `last` without a line end. */
  | { readonly kind: 'unended' }
  /** Prints `x` and `wideCharacters` times `€` (three bytes each) in one line, then `after`. */
  | { readonly kind: 'wide' }
  /** Prints one line of `maxLineBytes` + 10 times `a`, then `after`. */
  | { readonly kind: 'long' }
  /** Prints `leaving` and exits with 3. */
  | { readonly kind: 'exit3' }
  /** Prints `ready` and waits until SIGTERM ends it: 143. */
  | { readonly kind: 'wait' }
  /** Prints `ready`, ignores SIGTERM and waits until SIGKILL ends it: 137. */
  | { readonly kind: 'ignore_stop' }
  /** Prints `before`, waits until the path exists, prints `after`. */
  | { readonly kind: 'await_file'; readonly path: string }
  /** Writes the text to the path and prints `written`. */
  | { readonly kind: 'write'; readonly path: string; readonly text: string }
  /** Prints the file's text. */
  | { readonly kind: 'read'; readonly path: string }
  /** Prints the value of an environment variable. */
  | { readonly kind: 'environment'; readonly name: string }
  /** Prints the working directory. */
  | { readonly kind: 'where' }
  /** Prints `trouble` on standard error and exits with 1. */
  | { readonly kind: 'complain' }
  /** GETs the path from the gateway's port of the door, without a proxy, and prints the body. */
  | { readonly kind: 'gateway'; readonly path: string }
  /** GETs the plain http address through the proxy of the door and prints the body. */
  | { readonly kind: 'proxy'; readonly url: string }
  /** Takes memory until the kernel ends it for the container's limit. */
  | { readonly kind: 'out_of_memory' };

export const wideCharacters = 300_000;

/** What a program is to the port. */
export type ProgramLaunch = Pick<SandboxSpec, 'command' | 'files'>;

/** The programs for an engine that really runs them. The image has a POSIX shell, coreutils and curl. */
export function shellProgram(program: ConformanceProgram): ProgramLaunch {
  const run = (script: string, ...values: string[]): ProgramLaunch => ({
    command: ['/bin/sh', '-c', script, 'sh', ...values],
    files: [],
  });
  switch (program.kind) {
    case 'hello':
      return run('echo hello');
    case 'lines':
      return run('seq -f "line %.0f" 1 "$1"', String(program.count));
    case 'unended':
      return run("printf 'first\\nlast'");
    case 'wide':
      return run('printf x; yes € | head -n "$1" | tr -d "\\n"; echo; echo after', String(wideCharacters));
    case 'long':
      return run('head -c "$1" /dev/zero | tr "\\0" a; echo; echo after', String(maxLineBytes + 10));
    case 'exit3':
      return run('echo leaving; exit 3');
    case 'wait':
      return run('echo ready; exec sleep 3600');
    case 'ignore_stop':
      return run("trap '' TERM; echo ready; exec sleep 3600");
    case 'await_file':
      return run('echo before; while [ ! -e "$1" ]; do sleep 0.05; done; echo after', program.path);
    case 'write':
      return run('printf %s "$2" > "$1" && echo written', program.path, program.text);
    case 'read':
      return run('cat "$1"', program.path);
    case 'environment':
      return run('printenv "$1"', program.name);
    case 'where':
      return run('pwd');
    case 'complain':
      return run('echo trouble >&2; exit 1');
    case 'gateway':
      return run('exec curl -sS --noproxy "*" "http://127.0.0.1:3129$1"', program.path);
    case 'proxy':
      return run('exec curl -sS --proxy http://127.0.0.1:3128 "$1"', program.url);
    case 'out_of_memory':
      return run('exec tail /dev/zero');
  }
}
