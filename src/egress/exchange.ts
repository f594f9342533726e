import { decoderFor, encoderFor } from './body.ts';
import {
  BadMessage,
  parseResponseHead,
  type ResponseHead,
  readHead,
  responseFraming,
  valuesOf,
  wordsOf,
} from './http1.ts';
import type { Plan } from './plan.ts';
import type { Pool, Upstream } from './pool.ts';
import { Refusal } from './refusal.ts';
import { Replacer } from './replace.ts';
import { splice } from './splice.ts';
import { redactText } from './substitute.ts';
import { connectionClosed, upload } from './upload.ts';
import type { Wire } from './wire.ts';

/** What became of one request. Byte counts are those of the bodies (after an upgrade, of everything). */
export interface Outcome {
  /** The status that the client has been sent; null when it has been sent none, so that a refusal can still be. */
  readonly status: number | null;
  readonly bytesUp: number;
  readonly bytesDown: number;
  /** The client's connection stands between two requests. */
  readonly canGoOn: boolean;
  readonly failure: Refusal | null;
}

const maxInformational = 20;
const badAnswer = (host: string, why: string) =>
  new Refusal('upstream_failed', `The answer of ${host} is malformed: ${why}.`);

/** Headers of the answer that speak about one connection, or that are written anew. */
const notRelayed = new Set([
  'connection',
  'content-length',
  'keep-alive',
  'proxy-authenticate',
  'proxy-connection',
  'transfer-encoding',
  'upgrade',
]);

/**
 * Carries one request out and its answer back, both ways at the same time and never more of a body in memory than
 * one high-water mark each way. Never throws: what went wrong is the outcome's `failure`.
 */
export async function exchange(client: Wire, plan: Plan, pool: Pool): Promise<Outcome> {
  const exchanged = new Exchange(client, plan);
  let failure: Refusal | null = null;
  try {
    await exchanged.run(pool);
  } catch (error) {
    if (error instanceof Refusal) failure = error;
    else if (error instanceof BadMessage) failure = badAnswer(plan.authority.host, error.message);
    else throw error;
  } finally {
    exchanged.stop();
  }
  return exchanged.outcome(failure);
}

class Exchange {
  readonly #client: Wire;
  readonly #plan: Plan;
  #upstream: Wire | null = null;
  #status: number | null = null;
  #bytesUp = 0;
  #bytesDown = 0;
  #bodySent: boolean;
  #canGoOn = false;
  #stopped = false;
  /** What ended the request's body early; it explains why the origin's connection was closed. */
  #bodyFailure: Refusal | null = null;

  constructor(client: Wire, plan: Plan) {
    this.#client = client;
    this.#plan = plan;
    this.#bodySent = plan.framing.kind === 'none';
  }

  outcome(failure: Refusal | null): Outcome {
    const canGoOn = failure === null && this.#canGoOn;
    return { status: this.#status, bytesUp: this.#bytesUp, bytesDown: this.#bytesDown, canGoOn, failure };
  }

  stop(): void {
    this.#stopped = true;
    this.#client.onClose = () => {};
  }

  async run(pool: Pool): Promise<void> {
    const { authority, secure } = this.#plan;
    this.#client.onClose = () => this.#upstream?.destroy();
    const { upstream, head } = await this.#open(pool);
    try {
      if (head.status === 101) {
        await this.#splice(upstream, head);
        return;
      }
      const isReusable = await this.#relay(upstream, head);
      if (isReusable && this.#bodySent) pool.release(authority, secure, upstream);
      else upstream.destroy();
    } catch (error) {
      upstream.destroy();
      throw error;
    }
  }

  /** Sends the request and reads the answer's head, once more on a new connection if a kept-alive one was dead. */
  async #open(pool: Pool): Promise<{ upstream: Wire; head: ResponseHead }> {
    for (let reuse = true; ; reuse = false) {
      const taken: Upstream = await pool.take(this.#plan.authority, this.#plan.secure, reuse);
      const upstream = taken.wire;
      this.#upstream = upstream;
      if (this.#client.gone) {
        upstream.destroy();
        throw connectionClosed();
      }
      upstream.write(this.#plan.head);
      if (!this.#bodySent) void this.#sendBody(upstream);
      try {
        const head = await this.#finalHead(upstream);
        if (head !== null && this.#bodyFailure === null) return { upstream, head };
      } catch (error) {
        upstream.destroy();
        throw this.#bodyFailure ?? (this.#client.gone ? connectionClosed() : asUpstreamFault(error));
      }
      upstream.destroy();
      if (this.#bodyFailure) throw this.#bodyFailure;
      if (this.#client.gone) throw connectionClosed();
      if (!(taken.isReused && this.#plan.isRepeatable)) {
        throw new Refusal('upstream_failed', `${this.#plan.authority.host} closed the connection without an answer.`);
      }
    }
  }

  /** Null when the origin closed the connection without a byte. */
  async #finalHead(upstream: Wire): Promise<ResponseHead | null> {
    for (let count = 0; count <= maxInformational; count++) {
      const text = await readHead(upstream);
      if (text === null) return null;
      const head = parseResponseHead(text);
      if (head.status === 101 && !this.#plan.isUpgrade) throw new BadMessage('it switches protocols unasked');
      if (head.status >= 200 || head.status === 101) return head;
    }
    throw new BadMessage('it never comes to a final status');
  }

  async #sendBody(upstream: Wire): Promise<void> {
    try {
      this.#bodySent = await upload(
        this.#client,
        upstream,
        this.#plan,
        (bytes) => {
          this.#bytesUp += bytes;
        },
        () => this.#stopped,
      );
    } catch (error) {
      this.#bodyFailure = asBodyFailure(error);
      upstream.destroy();
    }
  }

  /** Answers whether the origin's connection can be used again. */
  async #relay(upstream: Wire, head: ResponseHead): Promise<boolean> {
    const plan = this.#plan;
    const framing = responseFraming(head, plan.method);
    const isPlain = ['', 'identity'].includes(wordsOf(head.headers, 'content-encoding').join());
    const redactor = plan.redactions.length > 0 && isPlain ? new Replacer(plan.redactions) : null;
    const keepsLength =
      redactor === null || plan.redactions.every((pair) => pair.needle.length === pair.replacement.length);
    const isBodyless = framing.kind === 'none';
    const chunked = !isBodyless && plan.clientReadsChunks && !(framing.kind === 'length' && keepsLength);
    const endsWithClose = !isBodyless && !chunked && !(framing.kind === 'length' && keepsLength);
    const stays = plan.keepsAlive && this.#bodySent && !endsWithClose;
    const encoder = encoderFor(chunked);
    const decoder = decoderFor(framing);

    const lines = head.headers.filter(([name]) => !notRelayed.has(name.toLowerCase())).map(headerLine);
    if (chunked) lines.push('Transfer-Encoding: chunked\r\n');
    else if (!endsWithClose)
      lines.push(...valuesOf(head.headers, 'content-length').map((value) => `Content-Length: ${value}\r\n`));
    if (!stays) lines.push('Connection: close\r\n');
    let waiting: Buffer[] = [this.#responseHead(head, lines)];
    const send = () => {
      const [first, ...others] = waiting;
      if (first !== undefined) this.#client.write(others.length === 0 ? first : Buffer.concat(waiting));
      waiting = [];
    };
    const deliver = (data: Buffer) => {
      this.#bytesDown += data.length;
      const shown = redactor === null ? data : redactor.push(data);
      if (shown.length > 0) waiting.push(encoder.encode(shown));
    };

    this.#status = head.status;
    while (!decoder.done) {
      const piece = upstream.take();
      if (piece === undefined) {
        send();
        if (await upstream.more()) continue;
        if (framing.kind === 'close' && !this.#client.gone && this.#bodyFailure === null) break;
        throw this.#bodyFailure ?? (this.#client.gone ? connectionClosed() : this.#cutShort());
      }
      const used = decoder.feed(piece, deliver);
      upstream.unread(piece.subarray(used));
      send();
      if (this.#client.congested) await this.#client.drained();
    }
    if (redactor !== null) waiting.push(encoder.encode(redactor.finish()));
    const trailers =
      redactor === null
        ? decoder.trailers
        : decoder.trailers.map(([name, value]) => [name, redactText(value, plan.redactions)] as const);
    if (!isBodyless) waiting.push(encoder.finish(trailers));
    send();
    if (this.#bodyFailure) throw this.#bodyFailure;
    this.#canGoOn = stays;
    return framing.kind !== 'close' && !upstream.hasUnread && keepsConnection(head);
  }

  #cutShort(): Refusal {
    return new Refusal(
      'upstream_failed',
      `${this.#plan.authority.host} closed the connection in the middle of its answer.`,
    );
  }

  #responseHead(head: ResponseHead, lines: readonly string[]): Buffer {
    const text = redactText(`${head.reason}\r\n${lines.join('')}`, this.#plan.redactions);
    return Buffer.from(`HTTP/1.1 ${head.status} ${text}\r\n`, 'latin1');
  }

  /** After a 101 both sides speak freely. Its head goes out in one write: some clients read no further. */
  async #splice(upstream: Wire, head: ResponseHead): Promise<void> {
    this.#status = 101;
    this.#client.write(this.#responseHead(head, head.headers.map(headerLine)));
    await splice(this.#client, upstream, {
      up: (bytes) => {
        this.#bytesUp += bytes;
      },
      down: (bytes) => {
        this.#bytesDown += bytes;
      },
    });
  }
}

const headerLine = ([name, value]: readonly [string, string]) => `${name}: ${value}\r\n`;

function keepsConnection(head: ResponseHead): boolean {
  const words = wordsOf(head.headers, 'connection');
  return head.version === '1.1' ? !words.includes('close') : words.includes('keep-alive');
}

function asBodyFailure(error: unknown): Refusal {
  if (error instanceof Refusal) return error;
  if (error instanceof BadMessage) return new Refusal('bad_request', `The request is malformed: ${error.message}.`);
  return new Refusal('upstream_failed', 'The request could not be sent on.');
}

/** A head of the origin that is too large is the origin's fault, not the client's. */
const asUpstreamFault = (error: unknown) =>
  error instanceof Refusal && error.code === 'head_too_large'
    ? new Refusal('upstream_failed', 'The headers of the answer are too large.')
    : error;
