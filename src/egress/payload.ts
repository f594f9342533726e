import { type Passage, withdrawn } from './carried.ts';
import type { EgressSecret, Surface } from './egress.ts';
import { type Header, valuesOf } from './http1.ts';
import { Replacer } from './replace.ts';
import { foreignPlaceholder, jsonForm, type SecretsForHost, secretsOn, urlForm } from './substitute.ts';

/** How a body is written, which decides how a value must stand in it. */
export type BodyForm = 'json' | 'form' | 'raw';

const jsonType = /[/+](?:x-)?(?:nd)?json(?:l|lines|-seq)?$/;

/** By the content type; whatever is neither JSON nor a URL-encoded form (multipart too) takes values as they are. */
export function bodyFormOf(headers: readonly Header[]): BodyForm {
  const type = valuesOf(headers, 'content-type')[0]?.split(';')[0]?.trim().toLowerCase() ?? '';
  if (type === 'application/x-www-form-urlencoded') return 'form';
  return jsonType.test(type) ? 'json' : 'raw';
}

const writers: Record<BodyForm, (value: string) => string> = {
  json: jsonForm,
  form: urlForm,
  raw: (value) => value,
};

const maxGrownBytes = 512 * 1024;

interface Meaning {
  readonly secret: EgressSecret;
  readonly isForeign: boolean;
  readonly keepsLength: boolean;
}

/**
 * Puts values into a body that streams by, and refuses placeholders that must not go to its host. The rules are those
 * of the moment: a change reaches the next bytes.
 */
export class Payload {
  /** Set once a length was promised to the origin: from then on only a value as long as its placeholder fits. */
  lengthIsFixed = false;
  readonly #passage: Passage;
  readonly #host: string;
  readonly #form: BodyForm | null;
  readonly #surface: Surface;
  #known: SecretsForHost;
  #meanings: readonly Meaning[] = [];
  #replacer: Replacer;
  #seen = 0;
  #pieceBytes = maxGrownBytes;

  /** Without a form nothing is put in (a compressed body), and placeholders are refused all the same. */
  constructor(passage: Passage, host: string, form: BodyForm | null, surface: Surface = 'body') {
    this.#surface = surface;
    this.#passage = passage;
    this.#host = host;
    this.#form = form;
    this.#known = passage.secrets();
    this.#replacer = this.#build();
  }

  /** Whether a value could be put in that is not as long as its placeholder. */
  get mayResize(): boolean {
    return this.#meanings.some(({ keepsLength }) => !keepsLength);
  }

  /** How much to hand over at a time, so that not more than half a MiB comes of it however long the values are. */
  get pieceBytes(): number {
    return this.#pieceBytes;
  }

  /** Answers what can be sent on. Throws `Refusal` before the last byte of a forbidden placeholder is given out. */
  push(data: Buffer): Buffer {
    const held = this.#follow();
    return this.#checked(this.#replacer.push(held.length === 0 ? data : Buffer.concat([held, data])));
  }

  /** Answers what was held back: the body has ended. */
  finish(): Buffer {
    const held = this.#follow();
    const last = this.#replacer.push(held);
    return this.#checked(Buffer.concat([last, this.#replacer.finish()]));
  }

  /** Throws `Refusal` when a text beside the body (its trailers) holds a placeholder that must not leave. */
  refuseForeignIn(text: string): void {
    const secret = this.#passage.secrets().foreign.find(({ placeholder }) => text.includes(placeholder));
    if (secret) throw foreignPlaceholder(secret, this.#host);
  }

  /** Takes over rules that have changed; answers the bytes that the old ones held back. */
  #follow(): Buffer {
    const now = this.#passage.secrets();
    if (now === this.#known) return empty;
    this.#known = now;
    const held = this.#replacer.release();
    this.#replacer = this.#build();
    this.#seen = 0;
    return held;
  }

  #build(): Replacer {
    const { eligible, foreign } = this.#known;
    const form = this.#form;
    const own = form === null ? [] : secretsOn(eligible, this.#surface);
    const write = writers[form ?? 'raw'];
    const pairs = [
      ...own.map((secret) => ({ secret, isForeign: false, replacement: Buffer.from(write(secret.value)) })),
      ...foreign.map((secret) => ({ secret, isForeign: true, replacement: Buffer.from(secret.placeholder) })),
    ].map((pair) => ({ ...pair, needle: Buffer.from(pair.secret.placeholder) }));
    const growth = Math.max(1, ...pairs.map(({ needle, replacement }) => replacement.length / (needle.length || 1)));
    this.#pieceBytes = Math.max(1, Math.floor(maxGrownBytes / growth));
    this.#meanings = pairs.map(({ secret, isForeign, needle, replacement }) => ({
      secret,
      isForeign,
      keepsLength: needle.length === replacement.length,
    }));
    return new Replacer(pairs);
  }

  #checked(safe: Buffer): Buffer {
    if (this.#replacer.found.size === this.#seen) return safe;
    this.#seen = this.#replacer.found.size;
    for (const position of this.#replacer.found) {
      const meaning = this.#meanings[position];
      if (meaning === undefined) continue;
      if (meaning.isForeign) throw foreignPlaceholder(meaning.secret, this.#host);
      // Only a value that was changed under way can be of another length than the one that was promised.
      if (this.lengthIsFixed && !meaning.keepsLength) throw withdrawn(meaning.secret.name, this.#host);
      this.#passage.put(meaning.secret);
    }
    return safe;
  }
}

const empty = Buffer.alloc(0);
