import { mkdtemp, rm } from 'node:fs/promises';
import { createServer as createPlain, type IncomingMessage, type ServerResponse } from 'node:http';
import { createServer as createSecure } from 'node:https';
import { type AddressInfo, connect as connectSocket, createServer as createTcp, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import { openAuthority } from '../../src/egress/authority.ts';
import {
  type EgressDoor,
  type EgressRequest,
  type EgressSecret,
  type HostPolicy,
  usualSurfaces,
} from '../../src/egress/egress.ts';
import type { EgressLimits } from '../../src/egress/limits.ts';
import { createEgress } from '../../src/egress/proxy.ts';
import { silentLog } from '../../src/kernel/log.ts';

export type Handler = (request: IncomingMessage, response: ServerResponse) => void;

export interface OriginSpec {
  readonly host: string;
  /** Its certificate is for this name instead of the host's. */
  readonly certificateFor?: string;
  /** Its certificate is signed by an authority that nobody trusts. */
  readonly untrusted?: boolean;
  readonly plain?: boolean;
  /** What it resolves to; a public address unless given. */
  readonly addresses?: readonly string[];
  /** The port that clients name; 443, or 80 for a plain one, unless given. */
  readonly port?: number;
  /** Speaks HTTP, or nothing but bytes where `onSocket` is given. */
  readonly handler?: Handler;
  readonly onSocket?: (socket: Socket) => void;
  readonly onUpgrade?: (request: IncomingMessage, socket: Socket) => void;
}

export interface Rig extends AsyncDisposable {
  readonly socketPath: string;
  readonly caCertificate: string;
  readonly directory: string;
  readonly requests: EgressRequest[];
  /** How often each host was resolved. */
  readonly resolved: Map<string, number>;
  /** Connections that origins have accepted, all together. */
  readonly accepted: () => number;
  /** Changes what holds for the run, as its owner does. */
  readonly update: EgressDoor['update'];
  closeDoor(): Promise<void>;
  /** Resolves with the ledger's entries once there are `count` of them. */
  recorded(count: number): Promise<EgressRequest[]>;
  /** A raw connection to the proxy. */
  connect(): Promise<Peer>;
  /** A tunnel with TLS inside. */
  tunnel(
    host: string,
    options?: { port?: number; servername?: string; alpn?: string[]; verify?: boolean },
  ): Promise<Peer>;
  /** A TCP port of loopback that leads to the run's socket, as the shim does. */
  forward(): Promise<number>;
}

/** The whole proxy with origins of its own behind names and public addresses that exist in this process only. */
export async function openRig(options: {
  origins: readonly OriginSpec[];
  secrets?: readonly EgressSecret[];
  policies?: readonly HostPolicy[];
  allowPrivate?: readonly string[];
  limits?: Partial<EgressLimits>;
  now?: () => number;
  /** What a name resolves to, in place of what the origins say. */
  resolve?: (host: string) => readonly string[];
  onRequest?: (request: EgressRequest) => void;
}): Promise<Rig> {
  const directory = await mkdtemp(path.join(tmpdir(), 'slipway-egress-'));
  const trusted = await openAuthority(path.join(directory, 'origins'));
  const unknown = await openAuthority(path.join(directory, 'unknown'));
  const extraCaFile = path.join(directory, 'extra.pem');
  await Bun.write(extraCaFile, trusted.certificate);
  const closers: (() => void)[] = [];
  const ports = new Map<string, number>();
  const addresses = new Map<string, readonly string[]>();
  let accepted = 0;
  for (const [index, spec] of options.origins.entries()) {
    const leaf = await (spec.untrusted ? unknown : trusted).leafFor(spec.certificateFor ?? spec.host);
    const server = spec.onSocket
      ? createTcp(spec.onSocket)
      : spec.plain
        ? createPlain(spec.handler)
        : createSecure({ cert: leaf.cert, key: leaf.key }, spec.handler);
    const sockets = new Set<Socket>();
    server.on('connection', (socket: Socket) => {
      accepted += 1;
      sockets.add(socket);
      socket.on('error', () => {});
    });
    if (spec.onUpgrade) server.on('upgrade', spec.onUpgrade);
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    closers.push(() => {
      server.close();
      for (const socket of sockets) socket.destroy();
    });
    const own = addresses.get(spec.host) ?? spec.addresses ?? [`93.184.216.${index + 1}`];
    addresses.set(spec.host, own);
    for (const address of own) {
      ports.set(`${address} ${spec.port ?? (spec.plain ? 80 : 443)}`, (server.address() as AddressInfo).port);
    }
  }
  const resolved = new Map<string, number>();
  const egress = await createEgress({
    directory: path.join(directory, 'ca'),
    allowPrivate: options.allowPrivate ?? [],
    extraCaFile,
    log: silentLog,
    ...(options.limits ? { limits: options.limits } : {}),
    ...(options.now ? { clock: options.now } : {}),
    async resolve(host) {
      resolved.set(host, (resolved.get(host) ?? 0) + 1);
      return options.resolve?.(host) ?? addresses.get(host) ?? [];
    },
    route: (address, port) => ({ hostname: '127.0.0.1', port: ports.get(`${address} ${port}`) ?? 1 }),
  });
  const socketPath = path.join(directory, 'proxy.sock');
  const requests: EgressRequest[] = [];
  const waiters: { count: number; resolve: (all: EgressRequest[]) => void }[] = [];
  const door = await egress.open({
    runId: 'run-1',
    socketPath,
    secrets: options.secrets ?? [],
    policies: options.policies ?? [],
    onRequest(request) {
      requests.push(request);
      for (const waiter of waiters) if (requests.length >= waiter.count) waiter.resolve(requests);
      options.onRequest?.(request);
    },
  });
  async function connect(): Promise<Peer> {
    const socket = connectSocket(socketPath);
    await new Promise((resolve, reject) => socket.once('connect', resolve).once('error', reject));
    closers.push(() => socket.destroy());
    return peerOf(socket);
  }
  return {
    socketPath,
    caCertificate: egress.caCertificate,
    directory,
    requests,
    resolved,
    accepted: () => accepted,
    update: (change) => door.update(change),
    closeDoor: () => door.close(),
    recorded(count) {
      if (requests.length >= count) return Promise.resolve(requests);
      return new Promise((resolve) => waiters.push({ count, resolve }));
    },
    connect,
    async tunnel(host, { port = 443, servername = host, alpn, verify = true } = {}) {
      const raw = await connect();
      raw.send(`CONNECT ${host}:${port} HTTP/1.1\r\nHost: ${host}:${port}\r\n\r\n`);
      const answer = await raw.until('\r\n\r\n');
      if (!answer.startsWith('HTTP/1.1 200 ')) throw new Error(answer);
      const socket = connectTls({
        socket: raw.release(),
        servername,
        ca: egress.caCertificate,
        rejectUnauthorized: verify,
        ...(alpn ? { ALPNProtocols: alpn } : {}),
      });
      await new Promise((resolve, reject) => {
        socket.once('secureConnect', resolve).once('error', reject).once('close', reject);
      });
      closers.push(() => socket.destroy());
      return peerOf(socket);
    },
    async forward() {
      const server = createTcp((client) => {
        const inner = connectSocket(socketPath);
        client.pipe(inner).pipe(client);
        const end = () => {
          client.destroy();
          inner.destroy();
        };
        client.on('error', end).on('close', end);
        inner.on('error', end).on('close', end);
      });
      await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
      closers.push(() => server.close());
      return (server.address() as AddressInfo).port;
    },
    async [Symbol.asyncDispose]() {
      for (const close of closers.reverse()) close();
      await egress.close();
      await rm(directory, { recursive: true, force: true });
    },
  };
}

/** One end of a connection, for tests that say what stands on the wire byte by byte. */
export interface Peer {
  readonly socket: Socket | TLSSocket;
  send(bytes: string | Uint8Array): void;
  /** What has arrived, as latin-1, once it holds `text` (after `from`); rejects when the connection ends before. */
  until(text: string | ((all: string) => boolean)): Promise<string>;
  /** All that arrived, once the connection has ended. */
  end(): Promise<string>;
  /** Forgets what has arrived. */
  clear(): void;
  /** Stops listening, to let TLS have the socket. */
  release(): Socket;
}

export function peerOf(socket: Socket | TLSSocket): Peer {
  let all = '';
  let ended = false;
  let changed = Promise.withResolvers<void>();
  const notify = () => {
    changed.resolve();
    changed = Promise.withResolvers<void>();
  };
  const onData = (bytes: Buffer) => {
    all += bytes.toString('latin1');
    notify();
  };
  const onEnd = () => {
    ended = true;
    notify();
  };
  socket.on('data', onData).on('end', onEnd).on('close', onEnd).on('error', onEnd);
  return {
    socket,
    send: (bytes) => void socket.write(bytes),
    async until(wanted) {
      const holds = typeof wanted === 'string' ? () => all.includes(wanted) : () => wanted(all);
      while (!holds()) {
        if (ended) throw new Error(`The connection ended with: ${all.slice(0, 300)}`);
        await changed.promise;
      }
      return all;
    },
    async end() {
      while (!ended) await changed.promise;
      return all;
    },
    clear() {
      all = '';
    },
    release() {
      socket.off('data', onData).off('end', onEnd).off('close', onEnd);
      return socket;
    },
  };
}

/** Answers with what it was sent, as JSON: method, path, headers as they stood, and the body. */
export const echo: Handler = (request, response) => {
  const parts: Buffer[] = [];
  request.on('data', (bytes: Buffer) => parts.push(bytes));
  request.on('end', () => {
    const body = Buffer.concat(parts).toString('latin1');
    const text = JSON.stringify({ method: request.method, url: request.url, headers: request.headers, body });
    response.setHeader('content-type', 'application/json');
    response.setHeader('content-length', Buffer.byteLength(text));
    response.end(text);
  });
};

export const secret = (over: Partial<EgressSecret> = {}): EgressSecret => ({
  name: 'API_KEY',
  placeholder: 'sk-MARKERplaceholder0000000000001',
  value: 'sk-REALreal-value-000000000000001',
  allowedHosts: ['api.allowed.test'],
  surfaces: usualSurfaces,
  ...over,
});
