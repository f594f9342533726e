import { describe, expect, test } from 'bun:test';
import {
  brotliCompressSync,
  constants,
  createBrotliCompress,
  createDeflate,
  createDeflateRaw,
  createGzip,
  createZstdCompress,
  deflateRawSync,
  deflateSync,
  gzipSync,
  zstdCompressSync,
} from 'node:zlib';
import { type EgressSecret, usualSurfaces } from '../../src/egress/egress.ts';
import { needlesFor, redactText, withoutCoding } from '../../src/egress/redact.ts';
import { contentDecoder, UnreadableContent } from '../../src/egress/redact-decode.ts';
import { redactionsOf } from '../../src/egress/redact-forms.ts';
import { Needles, Redactor } from '../../src/egress/redact-search.ts';
import { secretsForHost } from '../../src/egress/substitute.ts';

const seed = 20261122;

/** A small generator of our own, so that a failing case can be run again. */
function randomFrom(start: number): (below: number) => number {
  let state = start;
  return (below) => {
    state = (Math.imul(state, 1103515245) + 12345) & 0x7fffffff;
    return (state >>> 8) % below;
  };
}

const secret = (over: Partial<EgressSecret> = {}): EgressSecret => ({
  name: 'A',
  placeholder: 'ghp_MARKER00000000000000000000000000',
  value: 'ghp_Zm9vYmFyIHRoZSByZWFsIHZhbHVlMDAx',
  allowedHosts: ['h.test'],
  surfaces: usualSurfaces,
  ...over,
});

const needlesOf = (...secrets: EgressSecret[]) => new Needles(secrets.flatMap(redactionsOf));
const { placeholder } = secret();

describe('forms', () => {
  test('base64 anywhere inside a longer text decodes to that text with the placeholder in it', () => {
    // Its base64 has the characters in which the two alphabets differ.
    const differing = secret({ value: 'ghp_~~~???>>>~>?~~~???>>>~>?~~~???>>>' });
    const around = (own: string, before: number, after: string) =>
      Buffer.from(`${'ü~x?'.repeat(10).slice(0, before)}${own}${after}`);
    for (const each of [secret(), differing]) {
      const needles = needlesOf(each);
      for (const alphabet of ['base64', 'base64url'] as const) {
        for (let before = 0; before < 40; before++) {
          for (const after of ['', ':', 'ab', '\xff\xff\xff', ' and more']) {
            const shown = redactText(around(each.value, before, after).toString(alphabet), needles);
            const wanted = `${each.placeholder}${'.'.repeat((each.value.length - each.placeholder.length + 3) % 3)}`;
            expect(shown).toBe(around(wanted, before, after).toString(alphabet));
          }
        }
      }
    }
  });

  test('base64 of a value that is not as long as its placeholder still decodes, and what follows it stays', () => {
    for (const other of ['value-01', 'value-012', 'value-0123', 'x'.repeat(99)]) {
      const needles = needlesOf(secret({ value: other }));
      const text = redactText(Buffer.from(`user:${other}, the end`).toString('base64'), needles);
      expect(Buffer.from(text, 'base64').toString()).toMatch(new RegExp(`^user:${placeholder}\\.{0,2}, the end$`));
    }
  });

  test('a value with every awkward character is found as languages escape it', () => {
    const awkward = `a"b\\c/d<e>&f'g+h=i é€ 😀`;
    const needles = needlesOf(secret({ value: awkward }));
    const ascii = (text: string) =>
      text.replace(/[^\0-\x7f]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`);
    const json = JSON.stringify(awkward).slice(1, -1);
    const forms = {
      plain: awkward,
      JSON: json,
      PHP: ascii(json).replaceAll('/', '\\/'),
      Python: ascii(json),
      Go: json.replace(/[<>&]/g, (c) => `\\u00${c.charCodeAt(0).toString(16)}`),
      NET: ascii(json.replaceAll('\\"', '\\u0022'))
        .replace(/[<>&'+`]/g, (c) => `\\u00${c.charCodeAt(0).toString(16)}`)
        .replace(/\\u[0-9a-f]{4}/g, (c) => `\\u${c.slice(2).toUpperCase()}`),
      URL: encodeURIComponent(awkward),
      'lower-case URL': encodeURIComponent(awkward).replace(/%../g, (c) => c.toLowerCase()),
      form: new URLSearchParams({ v: awkward }).toString().slice(2),
      'every byte': Buffer.from(awkward).toString('hex').toUpperCase().replace(/../g, '%$&'),
      hexadecimal: Buffer.from(awkward).toString('hex'),
      HTML: Bun.escapeHTML(awkward),
    };
    for (const [name, form] of Object.entries(forms)) {
      const shown = redactText(Buffer.from(`<${form}>`).toString('latin1'), needles);
      expect({ name, hidden: !shown.includes(Buffer.from(form).toString('latin1')) }).toEqual({ name, hidden: true });
    }
  });

  test('an answer keeps its length when value and placeholder are equally long and plain', () => {
    expect(needlesOf(secret()).keepLength).toBe(true);
    expect(needlesOf(secret({ placeholder: 'ph_short' })).keepLength).toBe(false);
  });

  test('a value that chance would write is not searched', () => {
    expect(redactionsOf(secret({ value: '1234567' }))).toEqual([]);
  });

  test('only a host that a secret is allowed for is searched, without TLS too, and the tables are made once', () => {
    const own = secretsForHost([secret()], 'h.test', true);
    expect(needlesFor(own, 'h.test')).toBe(needlesFor(own, 'h.test'));
    expect(needlesFor(own, 'h.test')).not.toBeNull();
    expect(needlesFor(secretsForHost([secret()], 'h.test', false), 'h.test')).not.toBeNull();
    expect(needlesFor(secretsForHost([secret()], 'other.test', true), 'other.test')).toBeNull();
  });

  test('a value that begins like another one does not leave a rest of it behind', () => {
    const short = secret({ value: 'common-start', placeholder: 'ph_1' });
    const long = secret({ value: 'common-start-and-rest', placeholder: 'ph_2' });
    expect(redactText('x: common-start-and-rest, common-start', needlesOf(short, long))).toBe('x: ph_2, ph_1');
  });
});

describe('search', () => {
  /** The promise in its plainest form: leftmost first, longest at one place, one pass. */
  function replaceWhole(text: string, entries: Record<string, string>): string {
    const needles = Object.keys(entries).sort((a, b) => b.length - a.length);
    let result = '';
    for (let at = 0; at < text.length; ) {
      const needle = needles.find((candidate) => text.startsWith(candidate, at));
      result += needle === undefined ? text[at] : entries[needle];
      at += needle?.length ?? 1;
    }
    return result;
  }

  test('any chunking of a stream gives what replacing in the whole text gives', () => {
    const sets: Record<string, string>[] = [
      { 'sk-MARKAAAA': 'VALUE', ph_MARKBBBB: 'a value that is longer', ph_MARKBBBC: '' },
      { aab: '1', aabaab: '2', ab: '3', ba: '4' },
      { abcabd: 'X', bcab: 'Y', cabx: 'Z', abcabdabcabd: 'W' },
      Object.fromEntries(
        redactionsOf(secret({ value: 'aabbaabb', placeholder: 'PPPPPPPP' })).map(({ needle, replacement }) => [
          needle.toString(),
          replacement.toString(),
        ]),
      ),
    ];
    const random = randomFrom(seed);
    for (let round = 0; round < 6000; round++) {
      const entries = sets[round % sets.length] ?? {};
      const needles = Object.keys(entries);
      let text = '';
      for (let count = random(10); count > 0; count--) {
        const needle = needles[random(needles.length)] ?? '';
        text += random(2) === 0 ? needle : needle.slice(random(3), random(needle.length + 1)) + 'abcx'[random(4)];
      }
      const pairs = Object.entries(entries).map(([needle, replacement]) => ({
        needle: Buffer.from(needle),
        replacement: Buffer.from(replacement),
      }));
      const redactor = new Redactor(new Needles(pairs));
      let streamed = '';
      for (let at = 0; at < text.length; ) {
        const size = 1 + random(7);
        streamed += redactor.push(Buffer.from(text.slice(at, at + size))).toString();
        at += size;
      }
      streamed += redactor.finish().toString();
      if (streamed !== replaceWhole(text, entries)) {
        throw new Error(`seed ${seed}, round ${round}: ${JSON.stringify({ text, entries, streamed })}`);
      }
    }
  });

  test('an event that cannot be the beginning of a value is passed on at once, without a copy', () => {
    const redactor = new Redactor(needlesOf(secret()));
    const event = Buffer.from('data: hello\n\n');
    expect(redactor.push(event)).toBe(event);
    expect(redactor.push(Buffer.from('data: ghp_Z')).toString()).toBe('data: ');
    expect(redactor.push(Buffer.from('ip\n\n')).toString()).toBe('ghp_Zip\n\n');
  });
});

describe('compressed bodies', () => {
  const quickBrotli = (bytes: Buffer) => brotliCompressSync(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: 2 } });
  const packers = {
    gzip: { sync: gzipSync, stream: createGzip },
    deflate: { sync: deflateSync, stream: createDeflate },
    'deflate without a head': { sync: deflateRawSync, stream: createDeflateRaw },
    br: { sync: quickBrotli, stream: createBrotliCompress },
    zstd: { sync: zstdCompressSync, stream: createZstdCompress },
  } as const;
  const decoderFor = (name: string) => {
    const decoder = contentDecoder([name.split(' ')[0] ?? '']);
    if (decoder === null) throw new Error(name);
    return decoder;
  };

  for (const [name, { sync, stream }] of Object.entries(packers)) {
    test(`${name}: every flush of the origin is unpacked at once, whatever the pieces`, async () => {
      const packer = stream();
      const decoder = decoderFor(name);
      const packed: Buffer[] = [];
      packer.on('data', (data: Buffer) => packed.push(data));
      for (const event of ['data: one\n\n', 'data: two\n\n']) {
        packer.write(event);
        await new Promise<void>((resolve) => packer.flush(resolve));
        let shown = '';
        for (const byte of Buffer.concat(packed.splice(0))) {
          await decoder.decode(Buffer.from([byte]), (data) => {
            shown += data.toString();
          });
        }
        expect(shown).toBe(event);
      }
      decoder.close();
      packer.destroy();
    });

    test(`${name}: a bomb is unpacked as slowly as it is taken`, async () => {
      const size = 32 * 1024 * 1024;
      const decoder = decoderFor(name);
      let bytes = 0;
      let largest = 0;
      let underway = 0;
      const deliver = async (data: Buffer) => {
        underway += 1;
        expect(underway).toBe(1);
        await new Promise((resolve) => setImmediate(resolve));
        underway -= 1;
        bytes += data.length;
        largest = Math.max(largest, data.length);
      };
      await decoder.decode(sync(Buffer.alloc(size)), deliver);
      await decoder.finish(deliver);
      expect({ bytes, largest: largest <= 128 * 1024 }).toEqual({ bytes: size, largest: true });
    });

    test(`${name}: what is something else is told`, async () => {
      const decoder = decoderFor(name);
      const garbage = Buffer.from('\xff\xff\xff this is not compressed at all', 'latin1');
      await expect(decoder.decode(garbage, () => {})).rejects.toBeInstanceOf(UnreadableContent);
      decoder.close();
    });
  }

  test('several codings are taken off in their order, and an unknown one is not guessed at', async () => {
    const decoder = contentDecoder(['gzip', 'br']);
    let shown = '';
    const deliver = (data: Buffer) => {
      shown += data.toString();
    };
    await decoder?.decode(brotliCompressSync(gzipSync('hello')), deliver);
    await decoder?.finish(deliver);
    expect(shown).toBe('hello');
    expect(contentDecoder(['compress'])).toBeNull();
    expect(contentDecoder(['gzip', 'gzip', 'gzip', 'gzip'])).toBeNull();
  });

  test('a body that breaks off is told', async () => {
    const decoder = decoderFor('gzip');
    await decoder.decode(gzipSync('hello').subarray(0, -4), () => {});
    await expect(decoder.finish(() => {})).rejects.toBeInstanceOf(UnreadableContent);
  });

  test('a strong ETag becomes weak with the coding taken off', () => {
    const headers = [
      ['ETag', '"x"'],
      ['Content-Encoding', 'gzip'],
      ['Vary', 'Accept-Encoding'],
    ] as const;
    expect(withoutCoding(headers)).toEqual([
      ['ETag', 'W/"x"'],
      ['Vary', 'Accept-Encoding'],
    ]);
  });
});
