import { type BodyEncoder, decoderFor, encoderFor } from './body.ts';
import { codingsOf } from './coded.ts';
import { type Framing, type Header, type ResponseHead, responseFraming, valuesOf, wordsOf } from './http1.ts';
import type { Plan } from './plan.ts';
import { needlesFor, redactText, withoutCoding, withoutSums } from './redact.ts';
import { type ContentDecoder, contentDecoder, UnreadableContent } from './redact-decode.ts';
import { type Needles, Redactor } from './redact-search.ts';
import { Refusal } from './refusal.ts';
import type { Wire } from './wire.ts';

/** An answer on its way to the client. */
export interface Answer {
  readonly client: Wire;
  readonly upstream: Wire;
  readonly head: ResponseHead;
  readonly plan: Plan;
  /** The client's connection can carry another request if this answer leaves it in step. */
  readonly clientStays: boolean;
  /** Called once, before the first byte of the answer is sent. */
  onHead(): void;
  count(bytes: number): void;
  /** Why the connections may have ended early; null to go by what the connections say. */
  failure(): Refusal | null;
}

export interface Relayed {
  readonly clientStays: boolean;
  readonly upstreamStays: boolean;
}

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
 * Sends an answer on as it arrives, never more of it in memory than one high-water mark. Where a secret is allowed for
 * the host, values become placeholders again; a packed body is unpacked for it and sent so. Throws `Refusal`; nothing
 * was sent yet if `onHead` was not called.
 */
export async function relayAnswer(answer: Answer): Promise<Relayed> {
  const { client, head, plan } = answer;
  const framing = responseFraming(head, plan.method);
  const needles = needlesFor(plan.passage.secrets(), plan.authority.host);
  const codings = needles === null ? [] : codingsOf(head.headers);
  const isBodyless = framing.kind === 'none';
  const unpack = codings.length > 0 && !isBodyless ? unpackerFor(head, codings, plan.authority.host) : null;
  const keepsLength = framing.kind === 'length' && unpack === null && needles?.keepLength !== false;
  const chunked = !isBodyless && plan.clientReadsChunks && !keepsLength;
  const endsWithClose = !isBodyless && !chunked && !keepsLength;
  const clientStays = answer.clientStays && !endsWithClose;
  const sender = new Sender(client, needles, unpack, encoderFor(chunked));

  const lines = [`${head.reason}\r\n`, ...relayedHeaders(head, needles, isBodyless, codings).map(headerLine)];
  const own: string[] = [];
  if (chunked) own.push('Transfer-Encoding: chunked\r\n');
  else if (!endsWithClose) own.push(...lengthsOf(head, codings).map((value) => `Content-Length: ${value}\r\n`));
  if (!clientStays) own.push('Connection: close\r\n');
  sender.add(
    Buffer.from(`HTTP/1.1 ${head.status} ${redactText(lines.join(''), needles)}${own.join('')}\r\n`, 'latin1'),
  );
  answer.onHead();
  try {
    await relayBody(answer, framing, sender);
  } catch (error) {
    if (error instanceof UnreadableContent) throw unreadable(plan.authority.host, 'is not what its headers say');
    throw error;
  } finally {
    unpack?.close();
  }
  const early = answer.failure();
  if (early !== null) throw early;
  return { clientStays, upstreamStays: framing.kind !== 'close' && !answer.upstream.hasUnread && staysOpen(head) };
}

/** The length of a packed body is not that of what is sent, unless there is none at all. */
const lengthsOf = (head: ResponseHead, codings: readonly string[]) =>
  valuesOf(head.headers, 'content-length').filter((length) => codings.length === 0 || Number(length) === 0);

/** What cannot be read cannot be searched, so it is not sent on: the host may have been given a value at any time. */
function unpackerFor(head: ResponseHead, codings: readonly string[], host: string): ContentDecoder {
  if (head.status === 206) throw unreadable(host, 'is a part of a compressed whole');
  const decoder = contentDecoder(codings);
  if (decoder === null) throw unreadable(host, 'has a Content-Encoding other than gzip, deflate, br and zstd');
  return decoder;
}

const unreadable = (host: string, why: string) =>
  new Refusal('upstream_failed', `The answer of ${host} ${why}, so it cannot be searched for values of secrets.`);

function relayedHeaders(
  head: ResponseHead,
  needles: Needles | null,
  isBodyless: boolean,
  codings: readonly string[],
): readonly Header[] {
  const relayed = head.headers.filter(([name]) => !notRelayed.has(name.toLowerCase()));
  const searched = needles === null || isBodyless ? relayed : withoutSums(relayed);
  return codings.length === 0 ? searched : withoutCoding(searched);
}

async function relayBody(answer: Answer, framing: Framing, sender: Sender): Promise<void> {
  const { client, upstream } = answer;
  const decoder = decoderFor(framing);
  const arrived: Buffer[] = [];
  while (!decoder.done) {
    const piece = upstream.take();
    if (piece === undefined) {
      sender.send();
      if (await upstream.more()) continue;
      const early = answer.failure();
      if (framing.kind === 'close' && !client.gone && early === null) break;
      throw early ?? cutShort(answer);
    }
    const used = decoder.feed(piece, (data) => arrived.push(data));
    upstream.unread(piece.subarray(used));
    for (const data of arrived.splice(0)) {
      answer.count(data.length);
      await sender.deliver(data);
    }
    sender.send();
    if (client.congested) await client.drained();
  }
  if (framing.kind === 'none') sender.send();
  else await sender.finish(decoder.trailers);
}

function cutShort({ client, plan }: Answer): Refusal {
  const why = client.gone
    ? 'The connection was closed before the answer was complete.'
    : `${plan.authority.host} closed the connection in the middle of its answer.`;
  return new Refusal('upstream_failed', why);
}

/** Puts an answer on the client's wire: head and the first of the body in one write, where they come together. */
class Sender {
  readonly #client: Wire;
  readonly #needles: Needles | null;
  readonly #redactor: Redactor | null;
  readonly #unpack: ContentDecoder | null;
  readonly #encoder: BodyEncoder;
  #waiting: Buffer[] = [];

  constructor(client: Wire, needles: Needles | null, unpack: ContentDecoder | null, encoder: BodyEncoder) {
    this.#client = client;
    this.#needles = needles;
    this.#redactor = needles === null ? null : new Redactor(needles);
    this.#unpack = unpack;
    this.#encoder = encoder;
  }

  add(bytes: Buffer): void {
    if (bytes.length > 0) this.#waiting.push(bytes);
  }

  send(): void {
    const [first, ...others] = this.#waiting;
    if (first !== undefined) this.#client.write(others.length === 0 ? first : Buffer.concat(this.#waiting));
    this.#waiting = [];
  }

  /** Takes a piece of the body as it stood between the chunks; a promise where it has to be unpacked. */
  deliver(data: Buffer): void | Promise<void> {
    if (this.#unpack === null) this.#show(data);
    else return this.#unpack.decode(data, this.#showUnpacked);
  }

  async finish(trailers: readonly Header[]): Promise<void> {
    if (this.#unpack !== null) await this.#unpack.finish(this.#showUnpacked);
    if (this.#redactor !== null) this.add(this.#encoder.encode(this.#redactor.finish()));
    const shown = this.#needles === null ? trailers : withoutSums(trailers);
    this.add(this.#encoder.finish(shown.map(([name, value]): Header => [name, redactText(value, this.#needles)])));
    this.send();
  }

  #show(data: Buffer): void {
    this.add(this.#encoder.encode(this.#redactor === null ? data : this.#redactor.push(data)));
  }

  /** A few bytes can unpack to very many: each part of them waits until the client has taken those before. */
  readonly #showUnpacked = async (data: Buffer): Promise<void> => {
    this.#show(data);
    this.send();
    if (this.#client.congested) await this.#client.drained();
    if (this.#client.gone)
      throw new Refusal('upstream_failed', 'The connection was closed before the answer was complete.');
  };
}

export const headerLine = ([name, value]: Header) => `${name}: ${value}\r\n`;

function staysOpen(head: ResponseHead): boolean {
  const words = wordsOf(head.headers, 'connection');
  return head.version === '1.1' ? !words.includes('close') : words.includes('keep-alive');
}
