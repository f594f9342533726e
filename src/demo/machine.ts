import { spawn } from 'node:child_process';
import { existsSync, openSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { ask, openEngine } from '../sandbox/docker-engine.ts';
import { SandboxFailure } from '../sandbox/sandbox.ts';

const pingMs = 5000;
const pauseMs = 250;
/** Where root finds its programs, for a path that leaves these out. */
const systemPath = '/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin';
const daemonLog = '/var/log/slipway-dockerd.log';

/** What setting up finds on a machine and does to it. Tests pass one that does nothing. */
export interface Machine {
  /** As `process.platform`. */
  readonly platform: string;
  readonly isRoot: boolean;
  readonly hasSystemd: boolean;
  /** The text of /etc/os-release, empty where there is none. */
  osRelease(): Promise<string>;
  /** Where a program is, null where it is not. */
  which(program: string): string | null;
  /** Runs a command to its end; `output` is both of its streams. */
  run(command: readonly string[]): Promise<{ readonly code: number; readonly output: string }>;
  /** Why the engine cannot be used, in one sentence that says what to do; null where it answers. */
  engineProblem(dockerHost: string | null): Promise<string | null>;
  /** Waits until the engine answers; false where `until` comes first. */
  engineAnswers(dockerHost: string | null, until: AbortSignal): Promise<boolean>;
  /** Starts the engine's daemon in a session of its own, so that it outlives this process. */
  startDaemon(): Daemon;
}

export interface Daemon {
  readonly logFile: string;
  /** Aborts when the daemon has ended. */
  readonly ended: AbortSignal;
}

/** The machine that this process runs on. `daemonArguments` are for a test that must not meet the real engine. */
export function thisMachine(daemonArguments: readonly string[] = [], logFile = daemonLog): Machine {
  const which = (program: string) => Bun.which(program) ?? Bun.which(program, { PATH: systemPath });
  return {
    platform: process.platform,
    isRoot: process.getuid?.() === 0,
    hasSystemd: existsSync('/run/systemd/system'),
    osRelease: () => readFile('/etc/os-release', 'utf8').catch(() => ''),
    which,
    async run([program = '', ...args]) {
      const child = Bun.spawn([which(program) ?? program, ...args], {
        stdin: 'ignore',
        stdout: 'pipe',
        stderr: 'pipe',
      });
      const [code, ...texts] = await Promise.all([
        child.exited,
        new Response(child.stdout).text(),
        new Response(child.stderr).text(),
      ]);
      return { code, output: texts.join('') };
    },
    engineProblem,
    async engineAnswers(dockerHost, until) {
      while (!until.aborted) {
        if ((await engineProblem(dockerHost)) === null) return true;
        await Bun.sleep(pauseMs);
      }
      return false;
    },
    startDaemon() {
      const ended = new AbortController();
      const log = openSync(logFile, 'a', 0o600);
      const child = spawn(which('dockerd') ?? 'dockerd', [...daemonArguments], {
        detached: true,
        stdio: ['ignore', log, log],
      });
      child.once('error', () => ended.abort());
      child.once('exit', () => ended.abort());
      child.unref();
      return { logFile, ended: ended.signal };
    },
  };
}

async function engineProblem(dockerHost: string | null): Promise<string | null> {
  try {
    const docker = await openEngine(dockerHost)();
    await ask(docker.ping(), pingMs);
    return null;
  } catch (error) {
    if (error instanceof SandboxFailure) return error.message;
    throw error;
  }
}
