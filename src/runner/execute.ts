import type { CheckedOut, StoredRun } from '../runs/row.ts';
import type { NewRunEvent } from '../runs/schema.ts';
import { workspaceKeptMs } from '../runs/service.ts';
import { agentStarted, type Ending, lost, settled } from '../runs/state.ts';
import { SandboxFailure, type SandboxProcess } from '../sandbox/sandbox.ts';
import { type AgentEnd, orLetGo, type TurnControl, watchAgent } from './agent.ts';
import { beginTurn, showAgent } from './begin.ts';
import { diffWorkspace } from './diff.ts';
import { CancelledEarly, Detached, LeaseLost, TurnFailure } from './failure.ts';
import { checkoutFailedCode, endingOf, endingOfError } from './outcome.ts';
import { planTurn, type TurnPlan } from './plan.ts';
import { type OpenTurn, openTurn, type TurnNeeds } from './turn.ts';

export interface Claim {
  readonly run: StoredRun;
  /** An earlier process of the server had begun the turn. */
  readonly rescued: boolean;
}

/**
 * One turn of one run, from the claim to its end. Throws nothing but bugs of the database: whatever else fails ends
 * the run. When `control.letGo` is aborted it leaves the sandbox as it is and ends nothing.
 */
export async function executeTurn(needs: TurnNeeds, claim: Claim, control: TurnControl): Promise<void> {
  const { log } = needs;
  const { run } = claim;
  const broken = new AbortController();
  const guarded: TurnControl = { ...control, letGo: AbortSignal.any([control.letGo, broken.signal]) };
  let adopted: SandboxProcess | undefined;
  let turn: OpenTurn | undefined;
  let ending: Ending;
  try {
    if (claim.rescued) {
      adopted = await adoptPatiently(needs, run, control);
      const fate = adopted ? null : lost(run);
      if (fate?.requeue) {
        await needs.queue.requeue(run.id, run.leaseToken);
        needs.live.announceWork();
        return;
      }
      if (fate) {
        await settle(needs, run, fate.ending);
        return await needs.doors.remove(run.id, run.turn);
      }
    }
    const goesOn = adopted !== undefined;
    const plan = await planTurn(needs, run, { goesOn });
    turn = await openTurn(needs, run, plan, guarded, {
      adopted: goesOn,
      onBroken: (error) => broken.abort(error),
    });
    // The earlier process was lost between the start of the agent and the note of it.
    if (adopted && !agentStarted(run)) showAgent(turn.recorder, plan);
    const { process, checkouts } = adopted
      ? { process: adopted, checkouts: run.checkouts ?? [] }
      : await beginTurn(needs, run, plan, turn, guarded);
    adopted = process;
    const end = await work(needs, run, plan, turn, process, guarded);
    ending = end.ending;
    // Before anything that takes its time: a connection must not outlive the agent.
    await turn.ways.close();
    await finish(needs, run, turn, end.hasWorkTrees ? checkouts : []);
  } catch (error) {
    if (guarded.letGo.aborted || error instanceof Detached || error instanceof LeaseLost) {
      await turn?.close();
      if (!(error instanceof Detached)) log.warn('run let go', { run: run.id, reason: String(error) });
      return;
    }
    if (error instanceof CancelledEarly) ending = { status: 'cancelled' };
    else {
      ending = endingOfError(error);
      log.error('run failed', error, { run: run.id });
    }
  }
  await turn?.close();
  await settle(needs, run, turn ? hidden(ending, turn.hide) : ending);
  await adopted?.remove().catch((error) => log.error('a sandbox was not removed', error, { run: run.id }));
  await needs.doors.remove(run.id, run.turn);
}

/** How often, and how long after one another, a sandbox is looked for when the engine went away under it. */
const searchDelaysMs = [200, 500, 1000, 2000, 4000, 8000, 15_000];

/** Finds a sandbox again. After a reboot the server may be up before the engine is: it is given time to come. */
async function adoptPatiently(
  needs: TurnNeeds,
  run: StoredRun,
  control: TurnControl,
): Promise<SandboxProcess | undefined> {
  for (const delayMs of searchDelaysMs) {
    try {
      return await needs.sandbox.adopt(run.id, run.turn);
    } catch (error) {
      if (!(error instanceof SandboxFailure) || error.reason !== 'unavailable') throw error;
      needs.log.warn('the sandbox engine does not answer', { run: run.id, retryMs: delayMs });
      await orLetGo(control.letGo, Bun.sleep(delayMs));
    }
  }
  return needs.sandbox.adopt(run.id, run.turn);
}

/** Follows the agent to its end, over an engine that goes away for a while. */
async function work(
  needs: TurnNeeds,
  run: StoredRun,
  plan: TurnPlan,
  { recorder, ways, modelLimit }: OpenTurn,
  first: SandboxProcess,
  control: TurnControl,
): Promise<{ ending: Ending; hasWorkTrees: boolean }> {
  const progress = { linesSeen: run.linesSeen, stopReason: run.stopReason };
  const endsAt = (run.turnStartedAt ?? needs.clock()) + plan.configuration.maxRuntimeSeconds * 1000;
  let process = first;
  let interrupted = false;
  let end: AgentEnd | undefined;
  for (let search = 0; end === undefined; ) {
    try {
      if (interrupted) process = await adoptAgain(needs, run);
      end = await watchAgent({
        process,
        reader: plan.harness.reader(),
        recorder,
        progress,
        control,
        modelLimit,
        closeWays: ways.close,
        remainingMs: endsAt - needs.clock(),
      });
    } catch (error) {
      const delayMs = searchDelaysMs[search];
      if (!(error instanceof SandboxFailure) || delayMs === undefined) throw error;
      interrupted = true;
      search += 1;
      needs.log.warn('the sandbox engine does not answer', { run: run.id, retryMs: delayMs });
      await orLetGo(control.letGo, Bun.sleep(delayMs));
    }
  }
  const hasWorkTrees =
    end.exit.code !== checkoutFailedCode ||
    end.conclusion.answer !== null ||
    !(await needs.queue.hasEvent(run.id, run.turn, 'repositories_checked_out'));
  recorder.add([], { phase: 'finishing', ...(hasWorkTrees ? {} : { checkouts: null }) });
  const ending = endingOf({
    ...end,
    stopReason: progress.stopReason,
    interrupted,
    model: ways.model(),
    limits: plan.configuration,
  });
  return { ending, hasWorkTrees };
}

/** The sandbox as an engine has it that was away. Throws where it has none any more: looking again would find none. */
async function adoptAgain({ sandbox }: TurnNeeds, run: StoredRun): Promise<SandboxProcess> {
  const process = await sandbox.adopt(run.id, run.turn);
  if (process) return process;
  throw new TurnFailure(
    'sandbox_unavailable',
    'The sandbox was removed while the agent was working. Start the run again.',
  );
}

/** Shows what the agent changed, whatever became of it otherwise. */
async function finish(
  needs: TurnNeeds,
  run: StoredRun,
  { recorder }: OpenTurn,
  checkouts: readonly CheckedOut[],
): Promise<void> {
  await recorder.flush();
  if (checkouts.length === 0 || (await needs.queue.hasEvent(run.id, run.turn, 'diff'))) return;
  const events: NewRunEvent[] = [];
  try {
    const { diff, whole } = await diffWorkspace(needs.sandbox, run.id, checkouts);
    events.push({ type: 'diff', data: diff });
    if (!whole) events.push({ type: 'warning', data: { message: 'A part of the workspace could not be compared.' } });
  } catch (error) {
    if (!(error instanceof SandboxFailure)) throw error;
    events.push({ type: 'warning', data: { message: `The changes could not be shown: ${error.message}` } });
  }
  recorder.add(events);
  await recorder.flush();
}

async function settle(needs: TurnNeeds, run: StoredRun, ending: Ending): Promise<void> {
  const at = needs.clock();
  await needs.queue.settle(
    run.id,
    run.leaseToken,
    (current) => {
      const decided = settled(current, ending);
      return { ending: decided, events: [endEvent(decided)] };
    },
    { at, workspaceExpiresAt: at + workspaceKeptMs },
  );
  needs.live.announceEvents(run.id);
}

/** The ending without any real value in what the agent said. */
function hidden(ending: Ending, hide: (text: string) => string): Ending {
  if (ending.status === 'failed') return { ...ending, message: hide(ending.message) };
  if (ending.status === 'succeeded' && ending.resultSummary !== null) {
    return { ...ending, resultSummary: hide(ending.resultSummary) };
  }
  return ending;
}

function endEvent(ending: Ending): NewRunEvent {
  switch (ending.status) {
    case 'succeeded':
      return { type: 'run_succeeded', data: { resultSummary: ending.resultSummary } };
    case 'failed':
      return { type: 'run_failed', data: { category: ending.category, message: ending.message } };
    case 'cancelled':
      return { type: 'run_cancelled', data: {} };
  }
}
