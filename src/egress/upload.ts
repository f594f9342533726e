import { decoderFor, encoderFor } from './body.ts';
import type { Plan } from './plan.ts';
import { Refusal } from './refusal.ts';
import { Replacer } from './replace.ts';
import { foreignPlaceholder } from './substitute.ts';
import type { Wire } from './wire.ts';

const continueLine = Buffer.from('HTTP/1.1 100 Continue\r\n\r\n');

export const connectionClosed = () =>
  new Refusal('upstream_failed', 'The connection was closed before the answer was complete.');

/**
 * Streams a request's body to the origin. False when the origin hung up, or had its answer done (`isStopped`),
 * before the whole body was sent. Throws `Refusal` for a placeholder that must not leave, before its last byte has
 * left, and for a client that hung up; `BadMessage` for broken framing.
 */
export async function upload(
  client: Wire,
  upstream: Wire,
  plan: Plan,
  count: (bytes: number) => void,
  isStopped: () => boolean,
): Promise<boolean> {
  const decoder = decoderFor(plan.framing);
  const encoder = encoderFor(plan.framing.kind === 'chunked');
  const scanner = scannerFor(plan);
  const deliver = (data: Buffer) => {
    count(data.length);
    upstream.write(encoder.encode(scanner === null ? data : scanner.check(data)));
  };
  if (plan.awaitsContinue) client.write(continueLine);
  while (!decoder.done) {
    const piece = client.take();
    if (piece === undefined) {
      if (!(await client.more())) throw connectionClosed();
      if (isStopped()) return false;
      continue;
    }
    const used = decoder.feed(piece, deliver);
    client.unread(piece.subarray(used));
    if (upstream.congested) await upstream.drained();
    if (upstream.gone || isStopped()) return false;
  }
  if (scanner !== null) {
    upstream.write(encoder.encode(scanner.rest()));
    for (const [name, value] of decoder.trailers) scanner.check(Buffer.from(`${name}: ${value}\n`, 'latin1'));
  }
  upstream.write(encoder.finish(decoder.trailers));
  return true;
}

/** Looks for placeholders that must not go to the plan's host; null where there are none to look for. */
function scannerFor({ foreign, authority }: Plan) {
  if (foreign.length === 0) return null;
  const replacer = new Replacer(
    foreign.map(({ placeholder }) => ({ needle: Buffer.from(placeholder), replacement: Buffer.from(placeholder) })),
  );
  const refuseFound = (safe: Buffer): Buffer => {
    const [position] = replacer.found;
    const secret = position === undefined ? undefined : foreign[position];
    if (secret) throw foreignPlaceholder(secret, authority.host);
    return safe;
  };
  return {
    check: (data: Buffer) => refuseFound(replacer.push(data)),
    rest: () => refuseFound(replacer.finish()),
  };
}
