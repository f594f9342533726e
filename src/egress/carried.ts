import type { EgressSecret } from './egress.ts';
import type { Held } from './held.ts';
import { Refusal } from './refusal.ts';
import { deniedHost, denyingPolicy } from './rules.ts';
import { allowsHost, type SecretsForHost } from './substitute.ts';
import type { Wire } from './wire.ts';

/** One request on its way: what it may put in as it goes, and over which connections it went. */
export interface Passage {
  /** Names of the secrets that were put in so far. */
  readonly used: ReadonlySet<string>;
  /** What holds for the destination now: the same object as long as nothing changes. */
  secrets(): SecretsForHost;
  /** To be told before the value leaves. */
  put(secret: EgressSecret): void;
  /** To be told of each connection, the client's and the origin's, before the request uses it. */
  over(wire: Wire): void;
}

interface Load {
  readonly hosts: Set<string>;
  readonly values: Map<string, { readonly host: string; readonly secret: EgressSecret }>;
}

/** Which values each connection of a run has carried and to which hosts: what a change must end is found here. */
export class Carried {
  readonly #loads = new WeakMap<Wire, Load>();

  /** The connection leads to this host. */
  toward(wire: Wire, host: string): void {
    this.#loadOf(wire).hosts.add(host);
  }

  passage(host: string, secrets: () => SecretsForHost): Passage {
    const used = new Set<string>();
    const sent = new Set<EgressSecret>();
    const wires = new Set<Wire>();
    return {
      used,
      secrets,
      put: (secret) => {
        if (sent.has(secret)) return;
        sent.add(secret);
        used.add(secret.name);
        for (const wire of wires) this.#note(wire, host, secret);
      },
      over: (wire) => {
        wires.add(wire);
        this.toward(wire, host);
        for (const secret of sent) this.#note(wire, host, secret);
      },
    };
  }

  /** Closes those of the connections that carried what may not go there any more; they tell why by `endedFor`. */
  endWithdrawn(wires: Iterable<Wire>, held: Held): void {
    const ending: Wire[] = [];
    for (const wire of wires) {
      const load = this.#loads.get(wire);
      const reason = load === undefined || wire.closed ? null : reasonToEnd(load, held);
      if (reason === null) continue;
      wire.endedFor = reason;
      ending.push(wire);
    }
    // One that closes takes others with it, so all must know why before the first does.
    for (const wire of ending) wire.destroy();
  }

  #note(wire: Wire, host: string, secret: EgressSecret): void {
    this.#loadOf(wire).values.set(`${host} ${secret.value}`, { host, secret });
  }

  #loadOf(wire: Wire): Load {
    const known = this.#loads.get(wire);
    if (known !== undefined) return known;
    const load: Load = { hosts: new Set(), values: new Map() };
    this.#loads.set(wire, load);
    return load;
  }
}

function reasonToEnd(load: Load, held: Held): Refusal | null {
  for (const host of load.hosts) {
    const policy = denyingPolicy(held.policies, host);
    if (policy !== undefined) return deniedHost(host, policy);
  }
  for (const { host, secret } of load.values.values()) {
    const still = held.secrets.some(({ value, ...rest }) => value === secret.value && allowsHost(rest, host));
    if (!still) return withdrawn(secret.name, host);
  }
  return null;
}

/** The secret of a request under way is not what it was. */
export const withdrawn = (name: string, host: string) =>
  new Refusal(
    'secret_withdrawn',
    `${name} was changed or withdrawn, so the connection to ${host} that used it was ended.`,
  );
