/**
 * A load client in a process of its own: keeps `connections` requests under way over kept-alive connections for
 * `durationMs` and prints one JSON object. It reads no more of an answer than its status and its length, so that its
 * own cost is small and the same for every server.
 * Arguments: port, path, bearer, connections, durationMs.
 */
const [port = '', path = '/', bearer = '', connections = '32', durationMs = '3000'] = process.argv.slice(2);

const request = Buffer.from(`GET ${path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer ${bearer}\r\n\r\n`);
const headEnd = Buffer.from('\r\n\r\n');
const latencies: number[] = [];
let answers = 0;
let refused = 0;
let running = true;

interface State {
  rest: Buffer;
  sentAt: number;
}

function take(state: State, piece: Buffer): boolean {
  const all = state.rest.length === 0 ? piece : Buffer.concat([state.rest, piece]);
  const end = all.indexOf(headEnd);
  const head = end === -1 ? '' : all.toString('latin1', 0, end);
  const length = Number(/content-length: (\d+)/i.exec(head)?.[1] ?? Number.NaN);
  if (end === -1 || all.length < end + 4 + length) {
    state.rest = Buffer.from(all);
    return false;
  }
  state.rest = Buffer.alloc(0);
  answers += 1;
  if (!head.startsWith('HTTP/1.1 200')) refused += 1;
  if (answers % 16 === 0) latencies.push(performance.now() - state.sentAt);
  return true;
}

const sockets = await Promise.all(
  Array.from({ length: Number(connections) }, () =>
    Bun.connect<State>({
      hostname: '127.0.0.1',
      port: Number(port),
      data: { rest: Buffer.alloc(0), sentAt: 0 },
      socket: {
        data(socket, piece) {
          if (!take(socket.data, Buffer.from(piece.buffer, piece.byteOffset, piece.length)) || !running) return;
          socket.data.sentAt = performance.now();
          socket.write(request);
        },
      },
    }),
  ),
);
const began = performance.now();
for (const socket of sockets) {
  socket.data.sentAt = performance.now();
  socket.write(request);
}
await Bun.sleep(Number(durationMs));
running = false;
const seconds = (performance.now() - began) / 1000;
for (const socket of sockets) socket.terminate();
latencies.sort((a, b) => a - b);
console.log(
  JSON.stringify({
    answers,
    perSecond: answers / seconds,
    refused,
    p99Ms: latencies[Math.floor(latencies.length * 0.99)] ?? 0,
  }),
);

export {};
