import { Payload } from './payload.ts';
import type { Plan } from './plan.ts';
import { needlesFor, redactBytes } from './redact.ts';
import { Redactor } from './redact-search.ts';
import { Refusal } from './refusal.ts';
import {
  BadFrame,
  closeCodes,
  closeFrame,
  controlPayload,
  FrameReader,
  frameOf,
  type MessageKind,
  opcodes,
  type Piece,
} from './websocket-frames.ts';
import type { Wire } from './wire.ts';

/** A frame up to this length goes on as one frame; of a longer one the parts become fragments as they arrive. */
const gatherBytes = 256 * 1024;

/**
 * Carries WebSocket messages both ways (RFC 6455). In the client's text the values of secrets with the surface
 * `websocket` are put in; a placeholder that must not go to the host ends the connection, with 1008 for both sides, in
 * messages of any kind. In the server's messages values become placeholders again. Messages stream: an intermediary
 * may cut them into other fragments where no extension is in use (section 5.4), so that no length is promised before
 * it is known. Counts are bytes as they arrived. Throws `Refusal` after both sides were told.
 */
export async function relayMessages(
  client: Wire,
  upstream: Wire,
  plan: Plan,
  counts: { up(bytes: number): void; down(bytes: number): void },
): Promise<void> {
  // Each side's end is passed on behind the last of what it said, by `pump`.
  client.onClose = () => {};
  upstream.onClose = () => {};
  try {
    await Promise.all([
      pump(client, upstream, new FrameReader(true), new Rewriter(towardsOrigin(plan), true), counts.up),
      pump(upstream, client, new FrameReader(false), new Rewriter(towardsSandbox(plan), false), counts.down),
    ]);
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    const code = ['bad_request', 'upstream_failed'].includes(error.code)
      ? closeCodes.protocolError
      : closeCodes.policyViolation;
    upstream.write(closeFrame(code, '', true));
    upstream.end();
    client.write(closeFrame(code, error.message, false));
    await client.drained();
    client.end();
    throw error;
  }
}

async function pump(
  from: Wire,
  to: Wire,
  reader: FrameReader,
  rewriter: Rewriter,
  count: (bytes: number) => void,
): Promise<void> {
  for (;;) {
    const bytes = from.take();
    if (bytes === undefined) {
      if (await from.more()) continue;
      to.end();
      return;
    }
    count(bytes.length);
    const frames: Buffer[] = [];
    try {
      for (const piece of reader.read(bytes)) rewriter.take(piece, frames);
    } catch (error) {
      throw error instanceof BadFrame ? rewriter.side.refused(error) : error;
    } finally {
      const [first] = frames;
      if (first !== undefined) to.write(frames.length === 1 ? first : Buffer.concat(frames));
    }
    if (to.congested) await to.drained();
    if (to.closed) from.destroy();
  }
}

/** Changes one message as it streams by. */
interface Edit {
  push(data: Buffer): Buffer;
  finish(): Buffer;
}

/** What is done with what one side says. */
interface Side {
  message(kind: MessageKind, first: Buffer): Edit;
  control(payload: Buffer): Buffer;
  refused(error: BadFrame): Refusal;
}

function towardsOrigin({ passage, authority }: Plan): Side {
  const unchanged = () => new Payload(passage, authority.host, null, 'websocket');
  return {
    message: (kind, first) =>
      kind === 'text' ? new Payload(passage, authority.host, formOf(first), 'websocket') : unchanged(),
    control(payload) {
      const edit = unchanged();
      return Buffer.concat([edit.push(payload), edit.finish()]);
    },
    refused: (error) => new Refusal('bad_request', `A WebSocket frame of the client is malformed: ${error.message}.`),
  };
}

function towardsSandbox({ passage, authority }: Plan): Side {
  const needles = () => needlesFor(passage.secrets(), authority.host);
  return {
    message() {
      const sought = needles();
      return sought === null ? asItIs : new Redactor(sought);
    },
    control(payload) {
      const sought = needles();
      return sought === null ? payload : controlPayload(redactBytes(payload, sought));
    },
    refused: (error) =>
      new Refusal('upstream_failed', `A WebSocket frame of ${authority.host} is malformed: ${error.message}.`),
  };
}

const empty = Buffer.alloc(0);
const asItIs: Edit = { push: (data) => data, finish: () => empty };

/** A message has no content type, so its first character decides whether values are written as JSON writes them. */
const formOf = (first: Buffer) => (/^\s*[[{"]/.test(first.toString('latin1', 0, 64)) ? 'json' : 'raw');

/** Makes frames again of what was read, in the order in which it came. */
class Rewriter {
  readonly side: Side;
  readonly #masked: boolean;
  #edit: Edit | null = null;
  #gathered: Buffer[] = [];
  #gatheredBytes = 0;
  #begun = false;

  constructor(side: Side, masked: boolean) {
    this.side = side;
    this.#masked = masked;
  }

  /** Adds to `frames` what can be sent on. Throws `Refusal`. */
  take(piece: Piece, frames: Buffer[]): void {
    if (piece.kind === 'control') {
      frames.push(frameOf(piece.opcode, true, this.side.control(piece.payload), this.#masked));
      return;
    }
    this.#gathered.push(piece.payload);
    this.#gatheredBytes += piece.payload.length;
    if (!piece.endsFrame && this.#gatheredBytes < gatherBytes) return;
    const data = Buffer.concat(this.#gathered);
    this.#gathered = [];
    this.#gatheredBytes = 0;
    this.#edit ??= this.side.message(piece.kind, data);
    const edited = this.#edit.push(data);
    const shown = piece.endsMessage ? Buffer.concat([edited, this.#edit.finish()]) : edited;
    if (shown.length === 0 && !piece.endsMessage) return;
    const opcode = this.#begun ? opcodes.continuation : opcodes[piece.kind];
    frames.push(frameOf(opcode, piece.endsMessage, shown, this.#masked));
    this.#begun = !piece.endsMessage;
    if (piece.endsMessage) this.#edit = null;
  }
}
