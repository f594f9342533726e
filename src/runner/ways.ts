import path from 'node:path';
import type { Egress, EgressRequest } from '../egress/egress.ts';
import type { Gateway, GatewayRecord, ModelProvider, ModelRequestOutcome } from '../gateway/gateway.ts';
import type { Clock } from '../kernel/clock.ts';
import type { StoredRun } from '../runs/row.ts';
import type { NewRunEvent, RunEventData } from '../runs/schema.ts';
import { type ChangeNeeds, followChanges } from './changes.ts';
import type { Doors } from './doors.ts';
import type { TurnPlan } from './plan.ts';
import type { Recorder } from './recorder.ts';
import type { Scrubber } from './scrub.ts';
import { usageEvent } from './usage.ts';

/** A sandbox that knocks on closed doors without end is shown in the transcript this often, then only in the ledger. */
const mostDenialsShown = 50;

export interface WayNeeds extends ChangeNeeds {
  readonly egress: Egress;
  readonly gateway: Gateway;
  readonly doors: Doors;
  readonly clock: Clock;
  readonly ledger: { record(runId: string, turn: number, request: EgressRequest): void | Promise<void> };
  readonly modelRequests: {
    /** Counts one more request of the run before it leaves; null when the limit is reached. */
    reserve(request: {
      runId: string;
      turn: number;
      provider: ModelProvider;
      model: string;
      limit: number;
      at: number;
    }): Promise<string | null>;
    settle(requestId: string, outcome: ModelRequestOutcome): Promise<void>;
    /** What each settled request of the turn has used, oldest first. */
    settledOf(runId: string, turn: number): Promise<RunEventData['usage'][]>;
  };
  modelKey(workspaceId: string, provider: ModelProvider): Promise<string | null>;
}

/** The two ways out of a turn's sandbox: to the internet by the proxy, to the model by the gateway. */
export interface Ways {
  readonly socketDirectory: string;
  /** What the gateway saw in this turn since the ways were opened. */
  model(): GatewayRecord;
  /**
   * Ends every connection at once; whatever was still to be written about requests is written when it resolves.
   * Idempotent.
   */
  close(): Promise<void>;
}

/**
 * Opens both sockets, so that they listen before the sandbox starts, and writes down what goes through them. What may
 * be sent and reached follows the workspace until the ways are closed.
 */
export async function openWays(
  needs: WayNeeds,
  run: StoredRun,
  plan: TurnPlan,
  recorder: Recorder,
  scrub: Scrubber,
  onModelLimit: () => void,
): Promise<Ways> {
  const { configuration } = plan;
  const socketDirectory = await needs.doors.make(run.id, run.turn);
  let denials = 0;
  const door = await needs.egress.open({
    runId: run.id,
    socketPath: path.join(socketDirectory, 'proxy.sock'),
    secrets: plan.substitutions,
    policies: plan.policies,
    onRequest(request) {
      if (request.decision === 'denied') {
        denials += 1;
        if (denials <= mostDenialsShown) recorder.add([denied(request)]);
      }
      return needs.ledger.record(run.id, run.turn, withoutValues(request, scrub.text));
    },
  });
  const following = followChanges(needs, run, plan, door, scrub);
  try {
    // What was changed since the plan was made.
    await following.look();
    const session = await needs.gateway.open({
      runId: run.id,
      socketPath: path.join(socketDirectory, 'gateway.sock'),
      provider: configuration.modelProvider,
      model: configuration.model,
      maxOutputTokensPerRequest: configuration.maxOutputTokensPerRequest,
      apiKey: () => needs.modelKey(run.workspaceId, configuration.modelProvider),
      reserve: () =>
        needs.modelRequests.reserve({
          runId: run.id,
          turn: run.turn,
          provider: configuration.modelProvider,
          model: configuration.model,
          limit: configuration.maxModelRequests,
          at: needs.clock(),
        }),
      async settle(requestId, outcome) {
        await needs.modelRequests.settle(requestId, outcome);
        if (outcome.inputTokens > 0 || outcome.outputTokens > 0) {
          const { inputTokens, cachedInputTokens, outputTokens, costMicros } = outcome;
          const { model } = configuration;
          recorder.add([usageEvent({ model, inputTokens, cachedInputTokens, outputTokens, costMicros })]);
        }
      },
      onLimit: onModelLimit,
    });
    let closing: Promise<void> | null = null;
    return {
      socketDirectory,
      model: () => session.record(),
      close() {
        following.stop();
        closing ??= Promise.all([door.close(), session.close()]).then(() => {});
        return closing;
      },
    };
  } catch (error) {
    following.stop();
    await door.close();
    throw error;
  }
}

/** A host that sends back what was put in teaches the agent the value, and the agent may write it into an address. */
const withoutValues = (request: EgressRequest, hide: (text: string) => string): EgressRequest => ({
  ...request,
  host: hide(request.host),
  path: request.path === null ? null : hide(request.path),
  reason: request.reason === null ? null : hide(request.reason),
});

const denied = (request: EgressRequest): NewRunEvent => ({
  type: 'egress_denied',
  data: {
    host: request.host,
    port: request.port,
    method: request.method,
    path: request.path,
    reason: request.reason ?? 'refused',
  },
});
