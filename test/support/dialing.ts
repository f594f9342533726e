import { mkdtemp, rm } from 'node:fs/promises';
import { type AddressInfo, createServer as createTcp, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createServer as createTls } from 'node:tls';
import { type Authority as Certificates, openAuthority } from '../../src/egress/authority.ts';
import { createDialer, type Dialer, type DialerOptions } from '../../src/egress/dial.ts';
import { parseAllowPrivate } from '../../src/egress/rules.ts';
import type { Wire } from '../../src/egress/wire.ts';

/** A dialer and origins on loopback behind public addresses that exist in this process only. */
export interface Dialing extends AsyncDisposable {
  readonly directory: string;
  /** What the dialer trusts, and what nobody trusts. */
  readonly trusted: Certificates;
  readonly unknown: Certificates;
  /** Where connections were made to, as `address port`. */
  readonly routed: string[];
  /** An origin at the addresses that greets with `text`; over TLS with the certificate, if one is given. */
  origin(addresses: readonly string[], text: string, leaf?: { cert: string; key: string }): Promise<number>;
  dialer(options: Partial<DialerOptions> & { allowPrivate?: readonly string[] }): Dialer;
}

export async function openDialing(): Promise<Dialing> {
  const directory = await mkdtemp(path.join(tmpdir(), 'slipway-dial-'));
  const trusted = await openAuthority(path.join(directory, 'trusted'));
  const unknown = await openAuthority(path.join(directory, 'unknown'));
  const ports = new Map<string, number>();
  const servers: Server[] = [];
  const sockets = new Set<Socket>();
  const routed: string[] = [];
  return {
    directory,
    trusted,
    unknown,
    routed,
    async origin(addresses, text, leaf) {
      const greet = (socket: Socket) => {
        sockets.add(socket);
        socket.on('error', () => {});
        socket.write(text);
      };
      const server = leaf ? createTls(leaf, greet) : createTcp(greet);
      server.on('connection', (socket: Socket) => {
        sockets.add(socket);
        socket.on('error', () => {});
      });
      await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
      servers.push(server);
      const { port } = server.address() as AddressInfo;
      for (const address of addresses) ports.set(address, port);
      return port;
    },
    dialer: ({ allowPrivate = [], ...options }) =>
      createDialer({
        resolve: async () => [],
        access: parseAllowPrivate(allowPrivate),
        extraCa: [trusted.certificate],
        route(address, port) {
          routed.push(`${address} ${port}`);
          return { hostname: '127.0.0.1', port: ports.get(address) ?? 1 };
        },
        ...options,
      }),
    async [Symbol.asyncDispose]() {
      for (const server of servers) server.close();
      for (const socket of sockets) socket.destroy();
      await rm(directory, { recursive: true, force: true });
    },
  };
}

/** What an origin said first; the connection is closed then. */
export async function greeting(wire: Wire): Promise<string> {
  await wire.more();
  const text = wire.take()?.toString('latin1') ?? '';
  wire.destroy();
  return text;
}
