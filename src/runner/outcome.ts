import type { GatewayRecord, ModelFailure } from '../gateway/gateway.ts';
import type { HarnessConclusion } from '../harness/harness.ts';
import { RepositoryUnavailable } from '../integrations/provider.ts';
import type { StopReason } from '../runs/row.ts';
import type { FailureCategory } from '../runs/schema.ts';
import type { Ending } from '../runs/state.ts';
import { type SandboxExit, SandboxFailure } from '../sandbox/sandbox.ts';
import { TurnFailure } from './failure.ts';

/** The wrapper around the harness ends with this status when the work trees could not be made. */
export const checkoutFailedCode = 97;

/** What the sandbox's entry (`sandbox/enter`) ends with when the door did not open or its files were not there. */
const enterFailedCode = 98;

/** 128 + SIGKILL: what the kernel ends a process with that it takes the memory from. */
const killedCode = 137;

/** Everything that is known when the agent's process has ended. */
export interface TurnEnd {
  readonly exit: SandboxExit;
  readonly conclusion: HarnessConclusion;
  /** Why the runner stopped the agent, null when it ended by itself. */
  readonly stopReason: StopReason | null;
  /** The engine went away while the agent was working. */
  readonly interrupted: boolean;
  readonly model: Pick<GatewayRecord, 'lastFailure' | 'requestLimitHit'>;
  /** The end of standard error. */
  readonly diagnostics: string;
  readonly limits: { readonly maxModelRequests: number; readonly maxRuntimeSeconds: number };
}

const failed = (category: FailureCategory, message: string): Ending => ({ status: 'failed', category, message });

/**
 * What became of a turn. The order decides: what we did ourselves, then what the gateway saw, then what the kernel
 * did, and only then what the harness says, for it knows least. A cancel is put above all of it when the run settles.
 */
export function endingOf(end: TurnEnd): Ending {
  const { exit, conclusion, limits } = end;
  if (end.stopReason === 'runtime_limit') {
    return failed(
      'runtime_limit_exceeded',
      `The agent worked for ${limits.maxRuntimeSeconds} seconds, which is the automation's maxRuntimeSeconds. Raise it or give a smaller task.`,
    );
  }
  if (end.stopReason === 'model_requests' || end.model.requestLimitHit) {
    return failed(
      'model_request_limit_exceeded',
      `The run made ${limits.maxModelRequests} model requests, which is the automation's maxModelRequests. Raise it or give a smaller task.`,
    );
  }
  if (end.stopReason === 'output_flood') {
    return failed('execution_failed', 'The agent printed more than a run may. Ask it to write large output to files.');
  }
  if (conclusion.ok && exit.code === 0) return { status: 'succeeded', resultSummary: conclusion.answer };
  if (end.interrupted) {
    return failed('sandbox_unavailable', 'The Docker engine stopped while the agent was working. Start the run again.');
  }
  if (exit.code === checkoutFailedCode && conclusion.answer === null) {
    if (exit.outOfMemory) return memoryFull;
    return isDiskFull(end.diagnostics)
      ? diskFull
      : failed('repository_unavailable', 'The files of a repository could not be checked out in the sandbox.');
  }
  if (exit.code === enterFailedCode && conclusion.answer === null) {
    return failed('sandbox_unavailable', 'The way out of the sandbox did not open. `slipway sandbox check` tells why.');
  }
  // The engine says so too when the kernel killed no more than a command of the agent, which may have lived on.
  if (exit.outOfMemory && exit.code === killedCode) return memoryFull;
  const byModel = end.model.lastFailure && modelEnding(end.model.lastFailure);
  if (byModel) return byModel;
  if (isDiskFull(end.diagnostics)) return diskFull;
  if (conclusion.failure) return failed(conclusion.failure.category, conclusion.failure.message);
  return failed('execution_failed', `The agent's program ended with status ${exit.code}. Its raw output tells more.`);
}

/** What a failure of the newest model request means for the run; null where the harness knows better. */
function modelEnding(failure: ModelFailure): Ending | null {
  switch (failure) {
    case 'authentication':
      return failed(
        'model_authentication_failed',
        'The model provider refused the key. Check it and start the run again.',
      );
    case 'rate_limited':
      return failed(
        'model_rate_limited',
        "The model provider's rate limit was reached. Try again later or raise the limit there.",
      );
    case 'unavailable':
      return failed('model_unavailable', 'The model provider could not be reached or failed. Try again later.');
    case 'output_limit':
      return failed(
        'output_limit_exceeded',
        "An answer of the model reached the automation's maxOutputTokensPerRequest. Raise it or give a smaller task.",
      );
    case 'request_limit':
      return failed(
        'model_request_limit_exceeded',
        "The run reached the automation's maxModelRequests. Raise it or give a smaller task.",
      );
    case 'rejected':
      return failed(
        'execution_failed',
        'The model provider rejected a request. Check that the model exists and takes tools.',
      );
    case 'aborted':
      return null;
  }
}

const memoryFull = failed(
  'sandbox_out_of_memory',
  'The sandbox ran out of memory. Raise SLIPWAY_SANDBOX_MEMORY_MB or ask for smaller steps.',
);

const diskFull = failed(
  'sandbox_disk_full',
  'The disk of the sandboxes is full. Free space on the Docker host and start the run again.',
);

const isDiskFull = (text: string): boolean => /no space left on device/i.test(text);

/** What a turn that failed outside its agent ends as. An error that nobody expected is not explained to callers. */
export function endingOfError(error: unknown): Ending {
  if (error instanceof TurnFailure) return failed(error.category, error.message);
  const origin = error instanceof SandboxFailure ? error.cause : error;
  if (origin instanceof RepositoryUnavailable) return failed('repository_unavailable', origin.message);
  if (error instanceof SandboxFailure) {
    return failed(error.reason === 'out_of_disk' ? 'sandbox_disk_full' : 'sandbox_unavailable', error.message);
  }
  return failed(
    'execution_failed',
    "The run failed inside the server. The server's log names the cause by the run's id.",
  );
}
