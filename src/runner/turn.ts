import type { Log } from '../kernel/log.ts';
import type { Live } from '../runs/live.ts';
import type { RunQueue } from '../runs/queue.ts';
import type { StoredRun } from '../runs/row.ts';
import type { Sandbox, SandboxLimits } from '../sandbox/sandbox.ts';
import type { TurnControl } from './agent.ts';
import type { PlanNeeds, TurnPlan } from './plan.ts';
import { openRawFile } from './rawfile.ts';
import { createRecorder, type Recorder } from './recorder.ts';
import { scrubber } from './scrub.ts';
import { untoldUsage } from './usage.ts';
import { openWays, type WayNeeds, type Ways } from './ways.ts';

/** Everything that a turn is worked on with. */
export interface TurnNeeds extends PlanNeeds, WayNeeds {
  readonly queue: RunQueue;
  readonly live: Live;
  readonly log: Log;
  readonly sandbox: Sandbox;
  readonly limits: SandboxLimits;
  /** Where raw streams are kept. */
  readonly runsDirectory: string;
}

/** What is open while a turn is under way. */
export interface OpenTurn {
  readonly recorder: Recorder;
  readonly ways: Ways;
  readonly modelLimit: AbortSignal;
  /** Puts placeholders back into text that is kept without the recorder. */
  hide(text: string): string;
  /** Ends the ways, then writes what is left to write. Idempotent. */
  close(): Promise<void>;
}

/** Opens what a turn needs before its sandbox starts: the transcript, the raw file, the ways out. */
export async function openTurn(
  needs: TurnNeeds,
  run: StoredRun,
  plan: TurnPlan,
  control: TurnControl,
  { adopted, onBroken }: { adopted: boolean; onBroken: (error: unknown) => void },
): Promise<OpenTurn> {
  const hidden = plan.substitutions.map(({ value, placeholder }) => ({ value, placeholder }));
  const scrub = scrubber([...hidden, { value: plan.modelKey, placeholder: '[model key]' }]);
  const recorder = createRecorder({ ...needs, run, scrubber: scrub, onBroken });
  recorder.keepRaw(await openRawFile(needs.runsDirectory, run.id, run.turn, { anew: !adopted }));
  const modelLimit = new AbortController();
  const ways = await openGuarded().catch(async (error) => {
    await recorder.close();
    throw error;
  });
  // Nothing more goes out of a cancelled run, though its agent has a while to end. The end of the turn tells failures.
  const cut = () => void ways.close().catch(() => {});
  if (control.cancelled.aborted) cut();
  else control.cancelled.addEventListener('abort', cut, { once: true });
  let closing: Promise<void> | null = null;
  return {
    recorder,
    ways,
    modelLimit: modelLimit.signal,
    hide: scrub.text,
    close() {
      closing ??= ways.close().then(() => recorder.close());
      return closing;
    },
  };

  /** Not in a process that has let go: the next one opens sockets of the same names. */
  async function openGuarded(): Promise<Ways> {
    if (control.letGo.aborted) throw control.letGo.reason;
    if (adopted) {
      const told = await needs.queue.eventsOf(run.id, run.turn, 'usage');
      recorder.add(untoldUsage(await needs.modelRequests.settledOf(run.id, run.turn), told));
    }
    return openWays(needs, run, plan, recorder, scrub, () => modelLimit.abort());
  }
}
