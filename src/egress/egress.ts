/**
 * The way out of a sandbox: one forward proxy per run, on a Unix socket of its own. The socket is the run's identity.
 *
 * Protocol: `open` listens on `socketPath` (an old socket file there is replaced) and resolves when it accepts.
 * `door.close()` ends every connection of the run at once. Callbacks are called in the order of the requests' ends;
 * a throw in one is logged and does not disturb the connection.
 */
export interface Egress {
  open(run: EgressRun): Promise<EgressDoor>;
  /** PEM of the per-installation certificate authority, to be trusted inside sandboxes. */
  readonly caCertificate: string;
  close(): Promise<void>;
}

export interface EgressRun {
  readonly runId: string;
  readonly socketPath: string;
  readonly secrets: readonly EgressSecret[];
  /** Which hosts may be reached at all: each of the policies must allow one. None: every public host. */
  readonly policies: readonly HostPolicy[];
  /**
   * Every request that was decided on, allowed or not, after its end. A promise holds back the next request of the
   * same connection, so that a ledger which cannot keep up is not flooded.
   */
  onRequest(request: EgressRequest): void | Promise<void>;
}

/** A value that is put in on the way out, in place of its placeholder, for the allowed hosts and over TLS only. */
export interface EgressSecret {
  readonly name: string;
  readonly placeholder: string;
  readonly value: string;
  /** Exact names, `*.` wildcards (any depth below, never the apex), or IP addresses matched exactly. */
  readonly allowedHosts: readonly string[];
  /** A placeholder on another surface, sent to an allowed host over TLS, passes as it is. */
  readonly surfaces: readonly Surface[];
}

export interface EgressDoor {
  /**
   * Changes what holds for the run at once, for open connections too: the next request, and the next bytes of a body
   * or a frame, go by the new values. A connection over which a value was sent that is not among them any more, or to
   * a host that is not allowed any more, is ended.
   */
  update(change: { readonly secrets?: readonly EgressSecret[]; readonly policies?: readonly HostPolicy[] }): void;
  close(): Promise<void>;
}

/** A list of hosts, exact or with `*.` in front, as a secret's; an address is matched exactly. */
export interface HostPolicy {
  /** Whose list it is, for the sentence that tells of a refusal (`this workspace`); `this run` unless given. */
  readonly name?: string;
  /** What holds for a host that is not listed; the listed ones are the exception to it. */
  readonly default: 'allow' | 'deny';
  readonly hosts: readonly string[];
}

/** Where in a request a placeholder is replaced. */
export const surfaces = ['headers', 'query', 'path', 'body', 'websocket'] as const;
export type Surface = (typeof surfaces)[number];
export const usualSurfaces: readonly Surface[] = ['headers', 'query'];

/** One request as the ledger keeps it: path as it was before substitution, so it can hold placeholders only. */
export interface EgressRequest {
  readonly at: number;
  readonly host: string;
  readonly port: number;
  /** Null where the connection was refused before a request could be read. */
  readonly method: string | null;
  readonly path: string | null;
  /** The status that the sandbox saw. */
  readonly status: number | null;
  /** Bytes of the body, or everything after an upgrade to WebSocket. */
  readonly bytesUp: number;
  readonly bytesDown: number;
  readonly durationMs: number;
  /** Names of the secrets that were put in. */
  readonly secrets: readonly string[];
  readonly decision: 'allowed' | 'denied';
  /** Why it was denied, or what failed upstream; null for a request that went through. */
  readonly reason: string | null;
}
