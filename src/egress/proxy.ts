import { chmod, lstat, rm } from 'node:fs/promises';
import { type Clock, systemClock } from '../kernel/clock.ts';
import type { Log } from '../kernel/log.ts';
import type { Surroundings } from './answer.ts';
import { type Authority, openAuthority } from './authority.ts';
import { Carried } from './carried.ts';
import { createDialer, type Dialer, directRoute, type Route, readExtraCa } from './dial.ts';
import type { Egress, EgressDoor, EgressRun } from './egress.ts';
import { rulesOf } from './held.ts';
import { type EgressLimits, usualLimits, watchWires } from './limits.ts';
import { createPool } from './pool.ts';
import { Refusal, refusalAnswer } from './refusal.ts';
import { createResolver, type Resolve } from './resolve.ts';
import { type Access, parseAllowPrivate } from './rules.ts';
import { serveConnection } from './session.ts';
import type { ProxyUrlFor } from './upstream-proxy.ts';
import { Wire, type WireData, wireHandlers } from './wire.ts';

export interface EgressOptions {
  /** Where the certificate authority is kept; made if missing. */
  readonly directory: string;
  /** Entries of SLIPWAY_EGRESS_ALLOW_PRIVATE. */
  readonly allowPrivate: readonly string[];
  /** PEM file trusted upstream beside the usual roots. */
  readonly extraCaFile: string | null;
  readonly resolve?: Resolve;
  readonly route?: Route;
  /** The proxy on the way to a host, and whether names are its business; none unless given. */
  readonly proxyUrlFor?: ProxyUrlFor;
  readonly trustProxyDns?: boolean;
  readonly log: Log;
  readonly clock?: Clock;
  readonly limits?: Partial<EgressLimits>;
}

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
    resolve: options.resolve ?? createResolver({ clock }),
    access,
    extraCa,
    route: options.route ?? directRoute,
    ...(options.proxyUrlFor ? { proxyUrlFor: options.proxyUrlFor } : {}),
    trustProxyDns: options.trustProxyDns ?? false,
  });
  const limits = { ...usualLimits, ...options.limits };
  const parts: Parts = { access, certificates, dialer, clock, limits, log: options.log };
  const doors = new Set<EgressDoor>();
  return {
    caCertificate: certificates.certificate,
    async open(run) {
      const opened = await openDoor(run, parts);
      const door: EgressDoor = {
        update: opened.update,
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
  const wires = watchWires(limits, clock);
  const sessions = new Set<Promise<void>>();
  const rules = rulesOf(run);
  const carried = new Carried();
  // A dial or a handshake may be done only after the run's end.
  const endLate = (wire: Wire) => ended.signal.aborted && wire.destroy();
  const watch = (wire: Wire) => {
    wires.client(wire);
    endLate(wire);
  };
  const watchUpstream = (wire: Wire) => {
    wires.upstream(wire);
    endLate(wire);
  };
  const shared: Surroundings = {
    access: parts.access,
    certificates: parts.certificates,
    pool: createPool(parts.dialer, clock, ended.signal, watchUpstream, wires.refuseUsedUp),
    clock,
    headBytes: limits.headBytes,
    headTimeoutMs: limits.headTimeoutMs,
    carried,
    passageTo: (host, secure) => carried.passage(host, () => rules.secretsFor(host, secure)),
    refuseDenied: rules.refuseDenied,
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
  const sweeper = setInterval(wires.sweep, limits.sweepMs);
  sweeper.unref();

  let closing: Promise<void> | undefined;
  async function close(): Promise<void> {
    ended.abort();
    clearInterval(sweeper);
    listener.stop(true);
    wires.destroyAll();
    // Every request under way is recorded before the door counts as closed.
    await Promise.all(sessions);
    await rm(run.socketPath, { force: true });
  }
  return {
    update(change) {
      carried.endWithdrawn(wires.all(), rules.change(change));
    },
    close() {
      closing ??= close();
      return closing;
    },
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
