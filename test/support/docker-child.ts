import path from 'node:path';
import { type ManagementApi, managementApi } from './docker-api.ts';

const main = path.join(import.meta.dir, '../../src/main.ts');

/** The program as a user runs it from a checkout, on one data directory. */
export function slipwayProgram(dataDir: string, env: Record<string, string>) {
  const spawn = (words: readonly string[]) =>
    Bun.spawn([process.execPath, main, ...words], {
      cwd: dataDir,
      env: { PATH: process.env.PATH ?? '', HOME: dataDir, SLIPWAY_DATA_DIR: dataDir, ...env },
      stdin: 'ignore',
      stdout: 'pipe',
      stderr: 'pipe',
    });
  return {
    /** Runs a command that prints one JSON object, and answers it. */
    // biome-ignore lint/suspicious/noExplicitAny: commands answer with objects of every shape.
    async json(...words: string[]): Promise<any> {
      const child = spawn([...words, '--json']);
      const [text, errors] = await Promise.all([new Response(child.stdout).text(), new Response(child.stderr).text()]);
      if ((await child.exited) !== 0) throw new Error(`slipway ${words.join(' ')}: ${errors}`);
      return JSON.parse(text);
    },
    /** Starts the server on a free port; resolves when it listens. */
    async serve(key: string): Promise<ServerProcess> {
      const child = spawn(['serve', '--listen', '127.0.0.1:0']);
      const logged = new Response(child.stderr).text();
      const url = await listeningUrl(child.stdout);
      if (url === undefined) throw new Error(`the server did not start: ${await logged}`);
      return {
        api: managementApi(url, key),
        log: () => logged,
        async end(signal) {
          child.kill(signal);
          await child.exited;
        },
      };
    },
  };
}

export interface ServerProcess {
  readonly api: ManagementApi;
  /** What it has logged, once it has ended. */
  log(): Promise<string>;
  /** Sends the signal and waits until the process has ended. */
  end(signal: 'SIGKILL' | 'SIGTERM'): Promise<void>;
}

async function listeningUrl(output: ReadableStream<Uint8Array>): Promise<string | undefined> {
  const reader = output
    .pipeThrough(new TextDecoderStream() as never)
    .getReader() as ReadableStreamDefaultReader<string>;
  let text = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return undefined;
    text += value;
    const url = /listens on (\S+)/.exec(text)?.[1];
    if (url !== undefined) {
      reader.releaseLock();
      return url;
    }
  }
}
