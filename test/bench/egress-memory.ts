import { mkdtemp, rm } from 'node:fs/promises';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { connect as connectTls, createServer, type TLSSocket } from 'node:tls';
import { openAuthority } from '../../src/egress/authority.ts';
import { createEgress } from '../../src/egress/proxy.ts';
import { jsonLog } from '../../src/kernel/log.ts';

/**
 * What the egress proxy costs in memory, measured from outside: the proxy is a process of its own, clients and origin
 * are another. Prints the growth of its resident memory for idle tunnels, and for stalled readers and writers.
 *   bun test/bench/egress-memory.ts
 */
const host = 'api.memory.test';
const idleTunnels = 500;
const stalledEach = 40;
const mib = 1024 * 1024;

if (process.argv[2] === 'proxy') await serveProxy(process.argv[3] ?? '', Number(process.argv[4]));
else await measure();

/** The process under measurement: answers each line on its standard input with its resident bytes, after collecting. */
async function serveProxy(directory: string, originPort: number): Promise<void> {
  const egress = await createEgress({
    directory: path.join(directory, 'ca'),
    allowPrivate: [],
    extraCaFile: path.join(directory, 'extra.pem'),
    log: jsonLog((line) => void process.stderr.write(`${line}\n`)),
    resolve: async () => ['93.184.216.1'],
    route: () => ({ hostname: '127.0.0.1', port: originPort }),
    limits: { connections: 2 * idleTunnels },
  });
  await egress.open({
    runId: 'run-1',
    socketPath: path.join(directory, 'proxy.sock'),
    secrets: [],
    policies: [],
    onRequest() {},
  });
  await Bun.write(path.join(directory, 'ca.pem'), egress.caCertificate);
  process.stdout.write('ready\n');
  for await (const _ of console) {
    Bun.gc(true);
    await new Promise((resolve) => setTimeout(resolve, 300));
    Bun.gc(true);
    process.stdout.write(`${process.memoryUsage.rss()}\n`);
  }
  process.exit(0);
}

async function measure(): Promise<void> {
  const directory = await mkdtemp(path.join(tmpdir(), 'slipway-memory-'));
  const issuer = await openAuthority(path.join(directory, 'origins'));
  await Bun.write(path.join(directory, 'extra.pem'), issuer.certificate);
  const { cert, key } = await issuer.leafFor(host);
  const atOrigin = new Set<Socket>();
  const origin = createServer({ cert, key }, (socket) => {
    atOrigin.add(socket);
    socket.on('error', () => {});
    socket.on('data', (bytes: Buffer) => answer(socket, bytes.toString('latin1')));
  });
  await new Promise<void>((resolve) => origin.listen(0, '127.0.0.1', resolve));
  const child = Bun.spawn(
    [process.execPath, import.meta.path, 'proxy', directory, String((origin.address() as AddressInfo).port)],
    { stdin: 'pipe', stdout: 'pipe', stderr: 'inherit' },
  );
  const lines = linesOf(child.stdout);
  await lines();
  const ca = await Bun.file(path.join(directory, 'ca.pem')).text();
  const resident = async () => {
    child.stdin.write('\n');
    child.stdin.flush();
    return Number(await lines());
  };
  const open = () => tunnel(path.join(directory, 'proxy.sock'), ca);

  const cases: [string, number, number, (client: TLSSocket) => unknown][] = [
    ['idle tunnels, not used yet', idleTunnels, 10 / idleTunnels, () => {}],
    ['idle tunnels, each used once', idleTunnels, 10 / idleTunnels, use],
    ['readers that stall', stalledEach, 1, stallReading],
    ['writers whose origin stalls', stalledEach, 1, stallWriting],
  ];
  // What is made once, and what a process keeps after its first load, is no cost of a connection.
  for (let number = 0; number < 600; number++) {
    const client = await open();
    await use(client);
    client.destroy();
  }
  await new Promise((resolve) => setTimeout(resolve, 500));
  for (const [name, count, mostMib, work] of cases) {
    const before = await resident();
    const clients: TLSSocket[] = [];
    for (let number = 0; number < count; number++) {
      const client = await open();
      clients.push(client);
      await work(client);
    }
    await new Promise((resolve) => setTimeout(resolve, 3000));
    const grown = ((await resident()) - before) / mib;
    const each = grown / count;
    const verdict = each <= mostMib ? 'ok' : `more than ${mostMib.toFixed(3)}`;
    process.stdout.write(`${name}: ${count}, ${grown.toFixed(1)} MiB, ${each.toFixed(3)} MiB each (${verdict})\n`);
    for (const client of clients) client.destroy();
    for (const socket of atOrigin) socket.destroy();
    atOrigin.clear();
    await new Promise((resolve) => setTimeout(resolve, 500));
  }
  child.stdin.end();
  await child.exited;
  origin.close();
  await rm(directory, { recursive: true, force: true });
}

/** A small answer, one without an end, or none, with nothing read any more of the request's body. */
function answer(socket: TLSSocket, first: string): void {
  if (first.startsWith('GET /small')) {
    socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok');
    return;
  }
  if (!first.startsWith('GET /endless')) {
    socket.pause();
    return;
  }
  socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${1024 * mib}\r\n\r\n`);
  const piece = Buffer.alloc(256 * 1024);
  const pour = () => {
    while (!socket.destroyed && socket.write(piece));
  };
  socket.on('drain', pour);
  pour();
}

function head(method: string, target: string, more = ''): string {
  return `${method} ${target} HTTP/1.1\r\nHost: ${host}\r\n${more}\r\n`;
}

/** One request and its answer. */
async function use(client: TLSSocket): Promise<void> {
  client.write(head('GET', '/small'));
  await new Promise((resolve) => client.once('data', resolve));
}

function stallReading(client: TLSSocket): void {
  client.pause();
  client.write(head('GET', '/endless'));
}

function stallWriting(client: TLSSocket): void {
  client.write(head('POST', '/never', `Content-Length: ${1024 * mib}\r\n`));
  const piece = Buffer.alloc(256 * 1024);
  const pour = () => {
    while (!client.destroyed && client.write(piece));
  };
  client.on('drain', pour);
  pour();
}

async function tunnel(socketPath: string, ca: string): Promise<TLSSocket> {
  const raw = connect(socketPath);
  raw.on('error', () => {});
  raw.write(`CONNECT ${host}:443 HTTP/1.1\r\nHost: ${host}:443\r\n\r\n`);
  await new Promise((resolve) => raw.once('data', resolve));
  const socket = connectTls({ socket: raw, servername: host, ca });
  socket.on('error', () => {});
  await new Promise((resolve) => socket.once('secureConnect', resolve));
  return socket;
}

/** The next line of a stream, each time that it is called. */
function linesOf(stream: ReadableStream<Uint8Array>): () => Promise<string> {
  const reader = stream.getReader();
  const decoder = new TextDecoder();
  let held = '';
  return async () => {
    while (!held.includes('\n')) {
      const { value, done } = await reader.read();
      if (done) throw new Error('The proxy has ended.');
      held += decoder.decode(value, { stream: true });
    }
    const line = held.slice(0, held.indexOf('\n'));
    held = held.slice(line.length + 1);
    return line;
  };
}
