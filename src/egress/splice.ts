import type { Wire } from './wire.ts';

/** Joins two wires until both have ended; each way waits for the slower side. Bytes are counted as they pass. */
export async function splice(
  client: Wire,
  upstream: Wire,
  counts: { up(bytes: number): void; down(bytes: number): void },
): Promise<void> {
  // Each side's end is passed on behind the last of what it said, by `pour`.
  client.onClose = () => {};
  upstream.onClose = () => {};
  await Promise.all([pour(client, upstream, counts.up), pour(upstream, client, counts.down)]);
}

async function pour(from: Wire, to: Wire, count: (bytes: number) => void): Promise<void> {
  for (;;) {
    const piece = from.take();
    if (piece === undefined) {
      if (await from.more()) continue;
      to.end();
      return;
    }
    count(piece.length);
    to.write(piece);
    if (to.congested) await to.drained();
    if (to.closed) from.destroy();
  }
}
