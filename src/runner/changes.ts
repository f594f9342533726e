import { isDeepStrictEqual } from 'node:util';
import type { EgressDoor, EgressSecret, HostPolicy } from '../egress/egress.ts';
import type { Log } from '../kernel/log.ts';
import type { Live } from '../runs/live.ts';
import { renewEveryMs } from '../runs/queue.ts';
import type { StoredRun } from '../runs/row.ts';
import { type PlanNeeds, type TurnPlan, withRepositories } from './plan.ts';
import type { Scrubber } from './scrub.ts';

export interface ChangeNeeds extends Pick<PlanNeeds, 'secrets' | 'gitCredentials' | 'repositories' | 'policies'> {
  readonly live: Pick<Live, 'onEgress'>;
  readonly log: Log;
}

/** A run under way whose door is kept up to date. */
export interface Following {
  /** Resolves when the door goes by what is in the database now. Never rejects. */
  look(): Promise<void>;
  stop(): void;
}

/**
 * Keeps a run's door up to date with its workspace: a secret that was rotated, changed or deleted, a token of git that
 * was given anew, a list of hosts that was changed. A change in this process is heard of at once, one of another
 * process (the command line) within `everyMs`. What cannot be read is taken for gone: no value goes out then.
 */
export function followChanges(
  needs: ChangeNeeds,
  run: StoredRun,
  plan: TurnPlan,
  door: Pick<EgressDoor, 'update'>,
  scrub: Pick<Scrubber, 'learn'>,
  everyMs: number = renewEveryMs,
): Following {
  let known: Allowed = { secrets: plan.substitutions, policies: plan.policies };
  let last: Promise<void> = Promise.resolve();
  let stopped = false;

  async function lookNow(): Promise<void> {
    if (stopped) return;
    const fresh = await allowedNow(needs, run, plan).catch((error): Allowed => {
      needs.log.error('secrets of a run could not be read again and are withdrawn', error, { run: run.id });
      return { secrets: [], policies: known.policies };
    });
    if (stopped || isDeepStrictEqual(fresh, known)) return;
    // A value has to be known to the transcript before it can come back from a host; earlier ones stay known.
    scrub.learn(fresh.secrets);
    door.update(fresh);
    known = fresh;
  }

  /** One after the other, so that what was read last is what holds. */
  function look(): Promise<void> {
    last = last
      .then(lookNow)
      .catch((error) => needs.log.error('the door of a run was not brought up to date', error, { run: run.id }));
    return last;
  }

  const unsubscribe = needs.live.onEgress(run.workspaceId, look);
  const timer = setInterval(() => void look(), everyMs);
  timer.unref();
  return {
    look,
    stop() {
      stopped = true;
      unsubscribe();
      clearInterval(timer);
    },
  };
}

interface Allowed {
  readonly secrets: readonly EgressSecret[];
  readonly policies: readonly HostPolicy[];
}

/** What the run may use and reach at this moment. Its sandbox keeps the placeholders that it was started with. */
async function allowedNow(needs: ChangeNeeds, run: StoredRun, plan: TurnPlan): Promise<Allowed> {
  const { repositoryIds, workspaceSecretIds } = plan.configuration;
  const [secrets, credentials, repositories, policies] = await Promise.all([
    needs.secrets(run.workspaceId, workspaceSecretIds),
    needs.gitCredentials(run.workspaceId, repositoryIds),
    needs.repositories(run.workspaceId, repositoryIds),
    needs.policies(run),
  ]);
  const given = new Map(plan.gitCredentials.map(({ cloneUrl, placeholder }) => [cloneUrl, placeholder]));
  const ofGit = credentials.flatMap(({ cloneUrl, secret }) => {
    const placeholder = given.get(cloneUrl);
    return placeholder === undefined ? [] : [{ ...secret, placeholder }];
  });
  return { secrets: [...secrets, ...ofGit], policies: withRepositories(policies, repositories) };
}
