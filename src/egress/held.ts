import type { EgressSecret, HostPolicy } from './egress.ts';
import { deniedHost, denyingPolicy } from './rules.ts';
import { type SecretsForHost, secretsForHost } from './substitute.ts';

/** What holds for a run at one moment. */
export interface Held {
  readonly secrets: readonly EgressSecret[];
  readonly policies: readonly HostPolicy[];
}

/** What holds for a run now; it changes under the open connections. */
export interface Rules {
  /** The same object for the same question until the rules change. */
  secretsFor(host: string, secure: boolean): SecretsForHost;
  /** Throws `Refusal` for a host that one of the policies does not let be reached. */
  refuseDenied(host: string): void;
  /** Answers what holds from here on. */
  change(change: Partial<Held>): Held;
}

const mostHostsKnown = 1000;

/** Which secrets a host may have is decided once per host: a run asks the same few hosts again and again. */
export function rulesOf(start: Held): Rules {
  let held: Held = { secrets: start.secrets, policies: start.policies };
  const known = new Map<string, SecretsForHost>();
  return {
    secretsFor(host, secure) {
      const key = `${secure} ${host}`;
      const found = known.get(key);
      if (found !== undefined) return found;
      const secrets = secretsForHost(held.secrets, host, secure);
      if (known.size >= mostHostsKnown) known.clear();
      known.set(key, secrets);
      return secrets;
    },
    refuseDenied(host) {
      const policy = denyingPolicy(held.policies, host);
      if (policy !== undefined) throw deniedHost(host, policy);
    },
    change({ secrets, policies }) {
      held = { secrets: secrets ?? held.secrets, policies: policies ?? held.policies };
      known.clear();
      return held;
    },
  };
}
