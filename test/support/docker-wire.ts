import { rm } from 'node:fs/promises';
import { connect, createServer, type Socket } from 'node:net';
import path from 'node:path';

/** The engine's socket under another name, whose wire a test can cut, mend, and hold at a call. */
export async function engineWire(directory: string) {
  const socketPath = path.join(directory, `engine-${crypto.randomUUID().slice(0, 8)}.sock`);
  const open = new Set<Socket>();
  let isCut = false;
  let hold: { pattern: RegExp; reached: () => void } | null = null;
  const server = createServer({ allowHalfOpen: true }, (near) => {
    if (isCut) return void near.destroy();
    const far = connect({ path: '/var/run/docker.sock', allowHalfOpen: true });
    for (const [from, to] of [
      [near, far],
      [far, near],
    ] as const) {
      open.add(from);
      from.on('error', () => to.destroy());
      from.on('close', () => {
        open.delete(from);
        to.destroy();
      });
      from.on('end', () => to.end());
      from.on('data', (piece: Buffer) => {
        if (from === near && hold?.pattern.test(piece.toString('latin1'))) {
          hold.reached();
          hold = null;
          from.pause();
        } else if (!to.write(piece)) {
          from.pause();
          to.once('drain', () => from.resume());
        }
      });
    }
  });
  await new Promise<void>((resolve) => server.listen(socketPath, resolve));
  return {
    dockerHost: `unix://${socketPath}`,
    /** Resolves when a call comes that holds the pattern. The engine never hears of that one. */
    heldAt(pattern: RegExp): Promise<void> {
      const { promise, resolve } = Promise.withResolvers<void>();
      hold = { pattern, reached: resolve };
      return promise;
    },
    /** Ends every connection; new ones are ended at once. */
    cut() {
      isCut = true;
      for (const socket of open) socket.destroy();
    },
    mend() {
      isCut = false;
    },
    async [Symbol.asyncDispose]() {
      this.cut();
      await new Promise((resolve) => server.close(resolve));
      await rm(socketPath, { force: true });
    },
  };
}

/** A socket where an engine would be, that takes every call and never answers one. */
export async function silentEngine(directory: string) {
  const socketPath = path.join(directory, 'silent.sock');
  const open = new Set<Socket>();
  const server = createServer((socket) => {
    open.add(socket);
    socket.on('error', () => {});
    socket.resume();
  });
  await new Promise<void>((resolve) => server.listen(socketPath, resolve));
  return {
    dockerHost: `unix://${socketPath}`,
    async [Symbol.asyncDispose]() {
      for (const socket of open) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
