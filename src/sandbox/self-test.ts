import type { Log } from '../kernel/log.ts';
import { type Attempt, type LookInside, type Sandbox, SandboxFailure } from './sandbox.ts';

export interface SelfTestNeeds {
  readonly sandbox: Pick<Sandbox, 'lookInside'>;
  /** Where the sockets of the test's own door go. */
  readonly doors: {
    make(runId: string, turn: number): Promise<string>;
    remove(runId: string, turn: number): Promise<void>;
  };
  readonly limits: LookInside['limits'];
  readonly log: Log;
}

export interface SelfTestResult {
  readonly attempts: readonly Attempt[];
  /** Null when everything was as it should be; else what is wrong, in sentences with the mend and without addresses. */
  readonly problem: string | null;
}

/** The proof, from inside a sandbox, that nothing but the door can be reached. */
export interface SelfTest {
  /**
   * The result, which is kept as long as this process lives; the first call begins the test and every other one waits
   * for the same. Throws `SandboxFailure` when no sandbox could be started: the next call tries again.
   */
  result(): Promise<SelfTestResult>;
}

const place = ['self-test', 1] as const;

const isWrong = ({ ok }: Attempt): boolean => !ok;

/** A look that could not be made, or a door that did not answer, may be a busy machine's fault: it is looked again. */
const mostLooks = 3;
const mayPass = ({ kind }: Attempt): boolean => kind === 'means' || kind === 'door';

export function selfTest({ sandbox, doors, limits, log }: SelfTestNeeds): SelfTest {
  let known: Promise<SelfTestResult> | null = null;

  /** What was reached that must not be is never looked at again: a hole that is there at times is a hole. */
  async function lookAgain(task: LookInside): Promise<readonly Attempt[]> {
    for (let looks = 1; ; looks += 1) {
      const attempts = await sandbox.lookInside(task);
      const wrong = attempts.filter(isWrong);
      if (looks === mostLooks || wrong.length === 0 || !wrong.every(mayPass)) return attempts;
    }
  }

  async function look(): Promise<SelfTestResult> {
    try {
      const attempts = await lookAgain({ socketDirectory: await doors.make(...place), limits });
      const problem = problemOf(attempts);
      if (problem === null) log.info('a sandbox was looked at from inside', { attempts: attempts.length });
      else log.error('runs are refused', new Error(problem), { attempts: JSON.stringify(attempts.filter(isWrong)) });
      return { attempts, problem };
    } finally {
      await doors.remove(...place).catch((error) => log.warn('sockets were not removed', { reason: String(error) }));
    }
  }

  return {
    result() {
      known ??= look().catch((error) => {
        known = null;
        throw error;
      });
      return known;
    },
  };
}

/** The same sandboxes, none of which starts before the test has passed. */
export function provenSandbox(sandbox: Sandbox, test: SelfTest): Sandbox {
  return {
    ...sandbox,
    async start(spec) {
      const { problem } = await test.result();
      if (problem !== null) throw new SandboxFailure('unavailable', problem);
      return sandbox.start(spec);
    },
  };
}

/** What is wrong with a sandbox, each thing in sentences with its mend; null for one that is as it should be. */
export function problemOf(attempts: readonly Attempt[]): string | null {
  const failed = (kind: Attempt['kind']) => [
    ...new Set(attempts.filter((attempt) => attempt.kind === kind && !attempt.ok).map(({ what }) => what)),
  ];
  const [reached, closed, users, means] = [failed('network'), failed('door'), failed('user'), failed('means')];
  const sentences: string[] = [];
  if (reached.length > 0) {
    sentences.push(
      `A sandbox is not closed off: from inside it there is ${joined(reached)}. ` +
        'Run no agents on this engine until `slipway sandbox check` passes, then restart the server.',
    );
  }
  if (closed.length > 0) {
    sentences.push(
      `From inside a sandbox, ${joined(closed)} of the server cannot be reached. The data directory must be at the ` +
        'same path for the Docker engine as for the server, or SLIPWAY_DOOR_VOLUME be set. Restart the server then.',
    );
  }
  if (users.length > 0) {
    sentences.push('A sandbox does not run as its own user. Build the image with `slipway sandbox build`.');
  }
  if (attempts.length === 0 || (means.length > 0 && sentences.length === 0)) {
    sentences.push('A sandbox could not be looked at from inside. Build the image with `slipway sandbox build`.');
  }
  return sentences.length === 0 ? null : sentences.join(' ');
}

const joined = (names: readonly string[]): string =>
  names.length < 2 ? names.join('') : `${names.slice(0, -1).join(', ')} and ${names.at(-1)}`;
