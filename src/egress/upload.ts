import { type BodyDecoder, decoderFor, encoderFor } from './body.ts';
import { type CodedReader, codedReader } from './coded.ts';
import type { Framing } from './http1.ts';
import { Payload } from './payload.ts';
import type { Plan } from './plan.ts';
import { Refusal } from './refusal.ts';
import type { Wire } from './wire.ts';

const continueLine = Buffer.from('HTTP/1.1 100 Continue\r\n\r\n');

/** A body up to this length is read whole where a value may change its length; a longer one becomes chunked. */
export const maxBufferedBytes = 256 * 1024;

/** What a body may become in memory by long values, before it is sent on in chunks after all. */
const maxGrownBytes = 1024 * 1024;

export const connectionClosed = () =>
  new Refusal('upstream_failed', 'The connection was closed before the answer was complete.');

/**
 * Sends a request's head, then streams its body to the origin. False when the origin hung up, or had its answer done
 * (`isStopped`), before the whole body was sent. Throws `Refusal` for a placeholder that must not leave, before its
 * last byte has left, and for a client that hung up; `BadMessage` for broken framing.
 */
export async function upload(
  client: Wire,
  upstream: Wire,
  plan: Plan,
  count: (bytes: number) => void,
  isStopped: () => boolean,
): Promise<boolean> {
  const { passage, codings, authority } = plan;
  const payload = new Payload(passage, authority.host, codings.length === 0 ? plan.bodyForm : null);
  const inside = codings.length === 0 ? null : insideOf(plan);
  const decoder = decoderFor(plan.framing);
  const arrived: Buffer[] = [];
  const sender = senderFor(plan, payload, upstream);

  try {
    if (plan.awaitsContinue) client.write(continueLine);
    while (!decoder.done) {
      const piece = client.take();
      if (piece === undefined) {
        if (!(await client.more())) throw connectionClosed();
        if (isStopped()) return false;
        continue;
      }
      const used = decoder.feed(piece, (data) => arrived.push(data));
      client.unread(piece.subarray(used));
      for (const data of arrived.splice(0).flatMap((whole) => piecesOf(whole, payload.pieceBytes))) {
        count(data.length);
        const safe = payload.push(data);
        await inside?.push(data);
        sender.send(safe);
        if (upstream.congested) await upstream.drained();
        if (upstream.gone || isStopped()) return false;
      }
    }
    const last = payload.finish();
    await inside?.finish();
    sender.send(last);
    for (const [name, value] of decoder.trailers) payload.refuseForeignIn(`${name}: ${value}`);
    sender.finish(decoder.trailers);
    return true;
  } finally {
    inside?.close();
  }
}

function piecesOf(data: Buffer, size: number): Buffer[] {
  if (data.length <= size) return [data];
  return Array.from({ length: Math.ceil(data.length / size) }, (_, at) => data.subarray(at * size, (at + 1) * size));
}

interface Sender {
  send(data: Buffer): void;
  finish(trailers: BodyDecoder['trailers']): void;
}

/** Writes the head as soon as the framing is certain, then the body in that framing. */
function senderFor(plan: Plan, payload: Payload, upstream: Wire): Sender {
  const { framing } = plan;
  if (framing.kind !== 'length' || !payload.mayResize) return streamed(plan, payload, upstream, framing);
  if (framing.length > maxBufferedBytes) return streamed(plan, payload, upstream, { kind: 'chunked' });
  const parts: Buffer[] = [];
  let bytes = 0;
  let grown: Sender | null = null;
  return {
    send(data) {
      if (grown !== null) return grown.send(data);
      parts.push(data);
      bytes += data.length;
      if (bytes <= maxGrownBytes) return;
      grown = streamed(plan, payload, upstream, { kind: 'chunked' });
      for (const part of parts.splice(0)) grown.send(part);
    },
    finish(trailers) {
      if (grown !== null) return grown.finish(trailers);
      const body = Buffer.concat(parts);
      upstream.writeHead(plan.headWith({ kind: 'length', length: body.length }));
      upstream.write(body);
    },
  };
}

function streamed(plan: Plan, payload: Payload, upstream: Wire, framing: Framing): Sender {
  payload.lengthIsFixed = framing.kind === 'length';
  const encoder = encoderFor(framing.kind === 'chunked');
  upstream.writeHead(plan.headWith(framing));
  return {
    send: (data) => upstream.write(encoder.encode(data)),
    finish: (trailers) => upstream.write(encoder.finish(trailers)),
  };
}

/** Searches what is compressed; null where there is nothing to look for. */
function insideOf({ passage, codings, authority }: Plan): CodedReader | null {
  if (passage.secrets().foreign.length === 0) return null;
  const search = new Payload(passage, authority.host, null);
  const reader = codedReader(codings, (plain) => void search.push(plain));
  return {
    ...reader,
    async finish() {
      await reader.finish();
      search.finish();
    },
  };
}
