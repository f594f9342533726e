import type { Terminal } from '../../src/cli/command.ts';

/** A terminal that keeps what is written to it and reads `input`. */
export function fakeTerminal(input = ''): Terminal & { readonly stdout: string; readonly stderr: string } {
  const written = { stdout: '', stderr: '' };
  return {
    out(text) {
      written.stdout += `${text}\n`;
    },
    error(text) {
      written.stderr += `${text}\n`;
    },
    input: async () => input,
    get stdout() {
      return written.stdout;
    },
    get stderr() {
      return written.stderr;
    },
  };
}
