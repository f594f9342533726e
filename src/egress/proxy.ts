import { chmod, lstat, rm } from 'node:fs/promises';
import { type Clock, systemClock } from '../kernel/clock.ts';
import type { Log } from '../kernel/log.ts';
import type { Surroundings } from './answer.ts';
import { type Authority, openAuthority } from './authority.ts';
import {
  createDialer,
  type Dialer,
  directRoute,
  type Resolve,
  type Route,
  readExtraCa,
  systemResolve,
} from './dial.ts';
import type { Egress, EgressDoor, EgressRun } from './egress.ts';
import { createPool } from './pool.ts';
import { Refusal, refusalAnswer } from './refusal.ts';
import { type Access, parseAllowPrivate } from './rules.ts';
import { serveConnection } from './session.ts';
import { type SecretsForHost, secretsForHost } from './substitute.ts';
import { Wire, type WireData, wireHandlers } from './wire.ts';

export interface EgressLimits {
  /** Connections of one run at the same time; a further one is answered 503. */
  readonly connections: number;
  /** How long a client may take until a request's head is there, idle time between requests included. */
  readonly headTimeoutMs: number;
  /** How often deadlines are looked at. */
  readonly sweepMs: number;
}

export interface EgressOptions {
  /** Where the certificate authority is kept; made if missing. */
  readonly directory: string;
  /** Entries of SLIPWAY_EGRESS_ALLOW_PRIVATE. */
  readonly allowPrivate: readonly string[];
  /** PEM file trusted upstream beside the usual roots. */
  readonly extraCaFile: string | null;
  readonly resolve?: Resolve;
  readonly route?: Route;
  readonly log: Log;
  readonly clock?: Clock;
  readonly limits?: Partial<EgressLimits>;
}

const usualLimits: EgressLimits = { connections: 512, headTimeoutMs: 120_000, sweepMs: 1_000 };

/** `sockaddr_un` holds 108 bytes, the last of them a zero. */
const maxSocketPathBytes = 107;

interface Parts {
  readonly access: Access;
  readonly certificates: Authority;
  readonly dialer: Dialer;
  readonly clock: Clock;
  readonly limits: EgressLimits;
  readonly log: Log;
}

/** The egress proxy. Throws `ConfigError` for settings that cannot be used. */
export async function createEgress(options: EgressOptions): Promise<Egress> {
  const access = parseAllowPrivate(options.allowPrivate);
  const extraCa = await readExtraCa(options.extraCaFile);
  const clock = options.clock ?? systemClock;
  const certificates = await openAuthority(options.directory, clock);
  const dialer = createDialer({
    resolve: options.resolve ?? systemResolve,
    access,
    extraCa,
    route: options.route ?? directRoute,
  });
  const limits = { ...usualLimits, ...options.limits };
  const parts: Parts = { access, certificates, dialer, clock, limits, log: options.log };
  const doors = new Set<EgressDoor>();
  return {
    caCertificate: certificates.certificate,
    async open(run) {
      const opened = await openDoor(run, parts);
      const door: EgressDoor = {
        async close() {
          doors.delete(door);
          await opened.close();
        },
      };
      doors.add(door);
      return door;
    },
    async close() {
      await Promise.all([...doors].map((door) => door.close()));
    },
  };
}

async function openDoor(run: EgressRun, parts: Parts): Promise<EgressDoor> {
  const { clock, limits, log } = parts;
  await clearSocketPath(run.socketPath);
  const ended = new AbortController();
  const wires = new Set<Wire>();
  const sessions = new Set<Promise<void>>();
  const watch = (wire: Wire) => {
    wires.add(wire);
    // A dial or a handshake may be done only after the run's end.
    if (ended.signal.aborted) wire.destroy();
  };
  const shared: Surroundings = {
    access: parts.access,
    certificates: parts.certificates,
    pool: createPool(parts.dialer, clock, ended.signal, watch),
    clock,
    headTimeoutMs: limits.headTimeoutMs,
    secretsFor: secretsCache(run),
    watch,
    async report(request) {
      try {
        await run.onRequest(request);
      } catch (error) {
        log.error('A request of a sandbox could not be recorded.', error, { runId: run.runId });
      }
    },
  };

  function accept(socket: Bun.Socket<WireData>): void {
    const wire = new Wire(socket);
    socket.data = { wire };
    watch(wire);
    if (sessions.size >= limits.connections) {
      wire.write(refusalAnswer(new Refusal('connection_limit', 'The run has too many connections open.'), true));
      wire.end();
      return;
    }
    const session = serveConnection(wire, socket, shared)
      .catch((error: unknown) => log.error('A connection of a sandbox failed.', error, { runId: run.runId }))
      .finally(() => {
        wire.end();
        sessions.delete(session);
      });
    sessions.add(session);
  }

  const listener = Bun.listen<WireData>({ unix: run.socketPath, socket: { ...wireHandlers, open: accept } });
  // The directory decides who can come near; inside the shim's user namespace the owner may be anyone.
  await chmod(run.socketPath, 0o666);
  const sweeper = setInterval(() => sweep(wires, clock()), limits.sweepMs);
  sweeper.unref();

  let closing: Promise<void> | undefined;
  async function close(): Promise<void> {
    ended.abort();
    clearInterval(sweeper);
    listener.stop(true);
    for (const wire of wires) wire.destroy();
    // Every request under way is recorded before the door counts as closed.
    await Promise.all(sessions);
    wires.clear();
    await rm(run.socketPath, { force: true });
  }
  return {
    close() {
      closing ??= close();
      return closing;
    },
  };
}

/** Ends the wires that are past their deadline and forgets those that are closed. */
function sweep(wires: Set<Wire>, now: number): void {
  for (const wire of wires) {
    if (wire.deadlineAt !== null && wire.deadlineAt <= now) wire.destroy();
    if (wire.closed) wires.delete(wire);
  }
}

/** Which secrets a host may have is decided once per host: a run asks the same few hosts again and again. */
function secretsCache(run: EgressRun): (host: string, secure: boolean) => SecretsForHost {
  const known = new Map<string, SecretsForHost>();
  const most = 1000;
  return (host, secure) => {
    const key = `${secure} ${host}`;
    const found = known.get(key);
    if (found !== undefined) return found;
    const secrets = secretsForHost(run.secrets, host, secure);
    if (known.size >= most) known.clear();
    known.set(key, secrets);
    return secrets;
  };
}

async function clearSocketPath(socketPath: string): Promise<void> {
  if (Buffer.byteLength(socketPath) > maxSocketPathBytes) {
    throw new Error(
      `The path of a run's socket is longer than ${maxSocketPathBytes} bytes: choose a shorter data directory.`,
    );
  }
  const found = await lstat(socketPath).catch(() => null);
  if (found === null) return;
  if (!found.isSocket()) throw new Error("A run's socket cannot be made: a file that is no socket is in its place.");
  await rm(socketPath, { force: true });
}
