import { createServer as createPlain, type IncomingMessage, request as sendRequest } from 'node:http';
import { createServer as createSecure } from 'node:https';
import { type AddressInfo, connect, type Socket } from 'node:net';

/** A forward proxy of somebody's network, as small as can be. */
export interface ConnectProxy extends AsyncDisposable {
  readonly url: string;
  readonly port: number;
  /** What it was asked for: `CONNECT host:port`, or `GET http://host/path`. */
  readonly asked: string[];
  /** The credentials that came with each, null for none. */
  readonly credentials: (string | null)[];
}

/**
 * Listens on loopback. `portOf` says which port of loopback stands behind a `host:port`; undefined refuses it with 403.
 * `authorization` is asked for in `Proxy-Authorization`; with `tls` the proxy itself is reached over TLS.
 */
export async function connectProxy(options: {
  portOf(target: string): number | undefined;
  authorization?: string;
  tls?: { readonly cert: string; readonly key: string };
  /** Sent right behind the answer to CONNECT, as a proxy must not. */
  smuggled?: string;
}): Promise<ConnectProxy> {
  const asked: string[] = [];
  const credentials: (string | null)[] = [];
  const sockets = new Set<Socket>();
  const server = options.tls ? createSecure(options.tls) : createPlain();
  const keep = (socket: Socket) => {
    sockets.add(socket);
    socket.on('error', () => {});
  };
  const statusOf = (request: IncomingMessage, target: string): number => {
    asked.push(`${request.method} ${request.url}`);
    const authorization = request.headers['proxy-authorization'] ?? null;
    credentials.push(authorization);
    if (options.authorization !== undefined && authorization !== options.authorization) return 407;
    return options.portOf(target) === undefined ? 403 : 200;
  };
  server.on('connection', keep);
  server.on('connect', (request: IncomingMessage, client: Socket) => {
    keep(client);
    const status = statusOf(request, request.url ?? '');
    if (status !== 200) {
      client.end(`HTTP/1.1 ${status} No\r\nContent-Length: 0\r\n\r\n`);
      return;
    }
    const origin = connect(options.portOf(request.url ?? '') ?? 0, '127.0.0.1', () => {
      client.write(`HTTP/1.1 200 Connection established\r\n\r\n${options.smuggled ?? ''}`);
      client.pipe(origin).pipe(client);
    });
    keep(origin);
    origin.on('close', () => client.destroy());
    client.on('close', () => origin.destroy());
  });
  server.on('request', (request, response) => {
    const url = new URL(request.url ?? '');
    const target = `${url.hostname}:${url.port || 80}`;
    const status = statusOf(request, target);
    if (status !== 200) {
      response.writeHead(status).end();
      return;
    }
    const onward = sendRequest({
      port: options.portOf(target) ?? 0,
      host: '127.0.0.1',
      method: request.method ?? 'GET',
      path: url.pathname + url.search,
      headers: { ...request.headers, host: url.host },
    });
    onward.on('response', (answer) => {
      response.writeHead(answer.statusCode ?? 502, answer.headers);
      answer.pipe(response);
    });
    onward.on('error', () => response.destroy());
    request.pipe(onward);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return {
    port,
    url: `${options.tls ? 'https' : 'http'}://127.0.0.1:${port}`,
    asked,
    credentials,
    async [Symbol.asyncDispose]() {
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}
