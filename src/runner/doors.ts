import { createHash } from 'node:crypto';
import { mkdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { ConfigError } from '../config.ts';

/** A Unix socket's path holds 107 bytes; this is what a door adds to its root. */
const longestRoot = 107 - '/0123456789abcdef/gateway.sock'.length;

/** The directories of the sockets that lead out of the sandboxes, one a turn. */
export interface Doors {
  /** Makes the turn's directory; the same turn gets the same one after a restart of the server. */
  make(runId: string, turn: number): Promise<string>;
  remove(runId: string, turn: number): Promise<void>;
}

/**
 * Keeps them in the data directory, or, where its path is too long for a socket, under the system's temporary one. A
 * server in a container has them in a volume that is mounted at `volumePath`. Throws `ConfigError` for too long a path.
 */
export function openDoors(dataDir: string, volumePath: string | null = null): Doors {
  if (volumePath !== null && Buffer.byteLength(volumePath) > longestRoot) {
    throw new ConfigError(
      `SLIPWAY_DOOR_VOLUME: the path must be at most ${longestRoot} bytes, for sockets are made there.`,
    );
  }
  const inside = volumePath ?? path.join(dataDir, 'doors');
  const root =
    Buffer.byteLength(inside) <= longestRoot ? inside : path.join(tmpdir(), `slipway-${digest(dataDir).slice(0, 12)}`);
  const of = (runId: string, turn: number) => path.join(root, digest(`${runId}/${turn}`).slice(0, 16));
  return {
    async make(runId, turn) {
      const directory = of(runId, turn);
      await mkdir(directory, { recursive: true, mode: 0o700 });
      return directory;
    },
    remove: (runId, turn) => rm(of(runId, turn), { recursive: true, force: true }),
  };
}

const digest = (text: string): string => createHash('sha256').update(text).digest('hex');
