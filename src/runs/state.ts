import type { FailureCategory, RunPhase, RunStatus } from './schema.ts';

/**
 * The life of a run as pure rules: `pending → running → succeeded | failed | cancelled`, and a follow-up that reopens
 * a finished one. Nothing here reads a clock or a database; the store applies what these functions answer.
 */
export interface RunState {
  readonly status: RunStatus;
  /** Null when the run has finished. */
  readonly phase: RunPhase | null;
  readonly turn: number;
  /** How often this turn was begun. */
  readonly attempts: number;
  readonly cancelRequested: boolean;
}

/** A turn that is lost before its agent started is begun again, this often at most. */
export const maxAttempts = 3;

/** How a turn ended, before a cancel has had its say. */
export type Ending =
  | { readonly status: 'succeeded'; readonly resultSummary: string | null }
  | { readonly status: 'failed'; readonly category: FailureCategory; readonly message: string }
  | { readonly status: 'cancelled' };

export const isFinished = (status: RunStatus): boolean =>
  status === 'succeeded' || status === 'failed' || status === 'cancelled';

export const isActive = (status: RunStatus): boolean => !isFinished(status);

/** What a new run starts as. */
export const enqueued: RunState = {
  status: 'pending',
  phase: 'queued',
  turn: 1,
  attempts: 0,
  cancelRequested: false,
};

/** A runner takes the run: a waiting one begins, a running one whose lease ran out keeps its phase. */
export function claimed(run: RunState): RunState {
  if (run.status === 'pending') return { ...run, status: 'running', phase: 'preparing', attempts: run.attempts + 1 };
  if (run.status === 'running') return run;
  throw new Error(`a run that is ${run.status} cannot be claimed`);
}

const order: readonly RunPhase[] = ['queued', 'preparing', 'checking_out', 'agent', 'finishing'];

/** The run goes on to a later phase; a phase never goes back within one attempt. */
export function advanced(run: RunState, phase: RunPhase): RunState {
  if (run.status !== 'running' || run.phase === null) throw new Error(`a run that is ${run.status} has no phases`);
  if (order.indexOf(phase) < order.indexOf(run.phase))
    throw new Error(`a run cannot go from ${run.phase} back to ${phase}`);
  return { ...run, phase };
}

export const agentStarted = ({ phase }: RunState): boolean => phase === 'agent' || phase === 'finishing';

/** What becomes of a run whose runner vanished and whose sandbox cannot be adopted. */
export function lost(run: RunState): { readonly requeue: true } | { readonly requeue: false; readonly ending: Ending } {
  if (!agentStarted(run) && run.attempts < maxAttempts) return { requeue: true };
  return {
    requeue: false,
    ending: {
      status: 'failed',
      category: 'worker_lost',
      message: agentStarted(run)
        ? 'The server stopped while the agent was working and its sandbox is gone. Start the run again.'
        : `The server stopped ${maxAttempts} times while the run was being prepared. Start it again once the server is stable.`,
    },
  };
}

export function requeued(run: RunState): RunState {
  if (run.status !== 'running') throw new Error(`a run that is ${run.status} cannot go back to the queue`);
  return { ...run, status: 'pending', phase: 'queued' };
}

/** A cancel that was asked for wins over whatever lands later. */
export function settled(run: RunState, ending: Ending): Ending {
  if (isFinished(run.status)) throw new Error(`a run that is ${run.status} has ended already`);
  return run.cancelRequested ? { status: 'cancelled' } : ending;
}

/** A follow-up: the same run once more, in its next turn. */
export function reopened(run: RunState): RunState {
  if (!isFinished(run.status)) throw new Error(`a run that is ${run.status} cannot be reopened`);
  return { status: 'pending', phase: 'queued', turn: run.turn + 1, attempts: 0, cancelRequested: false };
}
