import { readdir } from 'node:fs/promises';
import { connect, isIP, type Socket } from 'node:net';
import path from 'node:path';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import { openAuthority } from '../../src/egress/authority.ts';
import type { TestService } from './service.ts';

/** A TLS origin with a name, or an address of this machine, of its own that keeps the tokens it was given. */
export async function echoOrigin(host: string, directory: string) {
  const authority = await openAuthority(directory);
  const leaf = await authority.leafFor(host);
  const caFile = path.join(directory, 'extra.pem');
  await Bun.write(caFile, authority.certificate);
  const tokens: string[] = [];
  const server = Bun.serve({
    hostname: isIP(host) ? host : '127.0.0.1',
    port: 0,
    tls: { cert: leaf.cert, key: leaf.key },
    fetch(request) {
      tokens.push(request.headers.get('x-token') ?? '');
      return new Response('taken');
    },
  });
  const port = server.port ?? 0;
  return {
    host,
    port,
    tokens,
    caFile,
    env: { SLIPWAY_EGRESS_ALLOW_PRIVATE: `${host}:${port}`, SLIPWAY_EGRESS_EXTRA_CA: caFile },
    [Symbol.asyncDispose]: () => server.stop(true),
  };
}

/** The sockets of the one run that is under way. */
export async function doorOf(service: TestService): Promise<string> {
  const doors = path.join(service.config.dataDir, 'doors');
  const [door] = await readdir(doors);
  if (door === undefined) throw new Error('no run is under way');
  return path.join(doors, door, 'proxy.sock');
}

export interface InTunnel extends Disposable {
  /** One GET with the token in a header, on the same connection; answers the status. */
  ask(token: string): Promise<number>;
  /** Resolves when the other side has ended the connection. */
  readonly ended: Promise<void>;
}

/** A tunnel through the proxy of a run, as a client inside the sandbox opens it; a number where it was refused. */
export async function tunnelTo(door: string, host: string, port: number): Promise<InTunnel | number> {
  const raw = connect(door);
  const { promise: ended, resolve: end } = Promise.withResolvers<void>();
  raw.once('close', end);
  raw.on('error', () => {});
  raw.write(`CONNECT ${host}:${port} HTTP/1.1\r\nHost: ${host}:${port}\r\n\r\n`);
  const status = await statusFrom(raw);
  if (status !== 200) {
    raw.destroy();
    return status;
  }
  const socket = connectTls({ socket: raw, servername: host, rejectUnauthorized: false });
  // Bun tells the end of a connection to the layer above alone.
  socket.on('error', end).once('end', end).once('close', end);
  await new Promise((resolve, reject) => socket.once('secureConnect', resolve).once('close', reject));
  return {
    ended,
    async ask(token) {
      socket.write(`GET / HTTP/1.1\r\nHost: ${host}:${port}\r\nX-Token: ${token}\r\n\r\n`);
      return statusFrom(socket, /taken$|\r\n0\r\n\r\n$/);
    },
    [Symbol.dispose]: () => raw.destroy(),
  };
}

/** Reads one answer, up to `end` where it is a good one (the proxy may have cut it into chunks), and its status. */
async function statusFrom(socket: Socket | TLSSocket, end = /\r\n\r\n$/): Promise<number> {
  const { promise, resolve, reject } = Promise.withResolvers<number>();
  let text = '';
  const read = (piece: Buffer) => {
    text += piece.toString('latin1');
    const status = Number(/^HTTP\/1\.1 (\d{3})/.exec(text)?.[1] ?? 0);
    if (status === 200 ? end.test(text) : text.includes('\r\n\r\n')) resolve(status);
  };
  const close = () => reject(new Error(`the connection was ended after: ${text}`));
  socket.on('data', read).once('close', close);
  try {
    return await promise;
  } finally {
    socket.off('data', read).off('close', close);
  }
}
