import { BadMessage, parseResponseHead, type ResponseHead, readHead } from './http1.ts';
import type { Plan } from './plan.ts';
import type { Pool, Upstream } from './pool.ts';
import { needlesFor, redactText } from './redact.ts';
import { Refusal } from './refusal.ts';
import { headerLine, relayAnswer } from './relay.ts';
import { splice } from './splice.ts';
import { connectionClosed, upload } from './upload.ts';
import { relayMessages } from './websocket.ts';
import { readsMessages, refuseExtensions } from './websocket-offer.ts';
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

  /** A limit of the run that has closed one of the connections explains everything that went wrong after it. */
  outcome(thrown: Refusal | null): Outcome {
    const failure = this.#upstream?.endedFor ?? this.#client.endedFor ?? thrown;
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
      this.#plan.passage.over(upstream);
      if (this.#bodySent) upstream.writeHead(this.#plan.headWith(this.#plan.framing));
      else void this.#sendBody(upstream);
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
    const { clientStays, upstreamStays } = await relayAnswer({
      client: this.#client,
      upstream,
      head,
      plan: this.#plan,
      clientStays: this.#plan.keepsAlive && this.#bodySent,
      onHead: () => {
        this.#status = head.status;
      },
      count: (bytes) => {
        this.#bytesDown += bytes;
      },
      failure: () => this.#bodyFailure,
    });
    this.#canGoOn = clientStays;
    return upstreamStays;
  }

  /** After a 101 both sides speak freely. Its head goes out in one write: some clients read no further. */
  async #splice(upstream: Wire, head: ResponseHead): Promise<void> {
    const { passage, authority } = this.#plan;
    const secrets = passage.secrets();
    const isRead = readsMessages(secrets);
    if (isRead) refuseExtensions(head, authority.host);
    const text = `${head.reason}\r\n${head.headers.map(headerLine).join('')}`;
    this.#status = 101;
    this.#client.write(
      Buffer.from(`HTTP/1.1 101 ${redactText(text, needlesFor(secrets, authority.host))}\r\n`, 'latin1'),
    );
    const counts = {
      up: (bytes: number) => {
        this.#bytesUp += bytes;
      },
      down: (bytes: number) => {
        this.#bytesDown += bytes;
      },
    };
    if (isRead) await relayMessages(this.#client, upstream, this.#plan, counts);
    else await splice(this.#client, upstream, counts);
  }
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
