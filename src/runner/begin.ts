import type { CheckedOut, StoredRun } from '../runs/row.ts';
import type { SandboxProcess } from '../sandbox/sandbox.ts';
import { orLetGo, type TurnControl } from './agent.ts';
import { gitConfig, prepareCheckout, wrapped } from './checkout.ts';
import { CancelledEarly } from './failure.ts';
import { places } from './places.ts';
import type { TurnPlan } from './plan.ts';
import { firstPrompt, restartedPrompt, systemPrompt } from './prompt.ts';
import type { Recorder } from './recorder.ts';
import type { OpenTurn, TurnNeeds } from './turn.ts';

/** Checks the repositories out and starts the agent. */
export async function beginTurn(
  needs: TurnNeeds,
  run: StoredRun,
  plan: TurnPlan,
  { recorder, ways }: OpenTurn,
  control: TurnControl,
): Promise<{ process: SandboxProcess; checkouts: readonly CheckedOut[] }> {
  const { sandbox } = needs;
  const { configuration, harness } = plan;
  recorder.add([{ type: 'run_started', data: { attempt: run.attempts } }], { phase: 'checking_out' });
  const kept = await keptCheckouts(needs, run);
  if (kept === null && (run.turn > 1 || run.attempts > 1)) await sandbox.discard(run.id);
  const fresh = kept === null ? await unlessCancelled(control, prepareCheckout(plan.repositories)) : null;
  const checkouts = kept ?? fresh?.checkouts ?? [];
  if (fresh) recorder.add([{ type: 'repositories_checked_out', data: { repositories: checkouts.map(shown) } }]);
  const continued = kept !== null && run.sessionId !== null;
  if (run.turn > 1 && kept === null) {
    const message = 'The workspace of the earlier turns has been removed. The agent starts over with a new checkout.';
    recorder.add([{ type: 'warning', data: { message } }]);
  }
  const launch = harness.launch({
    prompt: await promptOf(needs, run, configuration.prompt, continued),
    systemPrompt: systemPrompt({
      automationName: configuration.automationName,
      repositories: checkouts,
      secrets: plan.secrets,
    }),
    model: configuration.model,
    provider: configuration.modelProvider,
    maxOutputTokens: configuration.maxOutputTokensPerRequest,
    sessionId: continued ? run.sessionId : null,
    gatewayUrl: places.gateway,
    workingDirectory: checkouts[0]?.path ?? places.workspace,
  });
  if (control.cancelled.aborted) throw new CancelledEarly();
  recorder.add([], { checkouts });
  await recorder.flush();
  const starting = sandbox.start({
    runId: run.id,
    turn: run.turn,
    command: wrapped(launch.command, fresh ? checkouts.map(({ path }) => path) : []),
    workingDirectory: checkouts[0]?.path ?? places.workspace,
    environment: {
      GIT_CONFIG_GLOBAL: places.gitConfig,
      ...Object.fromEntries(plan.secrets.map(({ name, placeholder }) => [name, placeholder])),
      ...launch.environment,
    },
    files: [...launch.files, { path: places.gitConfig, content: gitConfig(plan.gitCredentials) }],
    archives: fresh?.archives ?? [],
    socketDirectory: ways.socketDirectory,
    caCertificate: needs.egress.caCertificate,
    limits: needs.limits,
  });
  const process = await starting.catch(async (error) => {
    // Half a checkout must not pass for the workspace of an earlier turn.
    if (fresh) {
      recorder.add([], { checkouts: null });
      await sandbox
        .discard(run.id)
        .catch((reason) => needs.log.error('a workspace was not removed', reason, { run: run.id }));
    }
    throw error;
  });
  showAgent(recorder, plan);
  return { process, checkouts };
}

/** Writes down that the agent works: from here on a turn that is lost is not begun again. */
export function showAgent(recorder: Recorder, { harness, configuration }: TurnPlan): void {
  const data = { harness: harness.id, model: configuration.model };
  recorder.add([{ type: 'sandbox_ready', data }], { phase: 'agent' });
}

/** What the agent is asked in this turn. */
async function promptOf(needs: TurnNeeds, run: StoredRun, instructions: string, continued: boolean): Promise<string> {
  if (run.turn === 1 || run.prompt === null) return firstPrompt(instructions, run.prompt);
  if (continued) return run.prompt;
  const [message, answer] = await Promise.all([
    needs.queue.lastEventBefore(run.id, run.turn, 'user_message'),
    needs.queue.lastEventBefore(run.id, run.turn, 'run_succeeded'),
  ]);
  const text = (value: unknown) => (typeof value === 'string' ? value : null);
  return restartedPrompt(
    instructions,
    { message: text(message?.text), answer: text(answer?.resultSummary) },
    run.prompt,
  );
}

/**
 * What an earlier turn left in the volumes, null when the repositories are to be checked out. An earlier attempt of
 * this very turn may have died in the middle of a checkout: what it left counts as nothing.
 */
async function keptCheckouts(needs: TurnNeeds, run: StoredRun): Promise<readonly CheckedOut[] | null> {
  if (run.checkouts === null || !(await needs.sandbox.hasVolumes(run.id))) return null;
  const begunAnew = run.attempts > 1 && (await needs.queue.hasEvent(run.id, run.turn, 'repositories_checked_out'));
  return begunAnew ? null : run.checkouts;
}

/** Resolves as `work` does, unless a cancel or a letting go comes first. */
function unlessCancelled<T>(control: TurnControl, work: Promise<T>): Promise<T> {
  const cancelled = new AbortController();
  const stop = () => cancelled.abort(new CancelledEarly());
  if (control.cancelled.aborted) stop();
  control.cancelled.addEventListener('abort', stop, { once: true });
  return orLetGo(AbortSignal.any([control.letGo, cancelled.signal]), work).finally(() =>
    control.cancelled.removeEventListener('abort', stop),
  );
}

const shown = ({ fullName, path, branch, commit }: CheckedOut) => ({ fullName, path, branch, commit });
