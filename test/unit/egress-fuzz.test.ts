import { expect, test } from 'bun:test';
import { decoderFor } from '../../src/egress/body.ts';
import { Carried } from '../../src/egress/carried.ts';
import { type EgressSecret, surfaces } from '../../src/egress/egress.ts';
import { BadMessage, parseRequestHead, readHead, requestFraming, wordsOf } from '../../src/egress/http1.ts';
import { locate, planRequest } from '../../src/egress/plan.ts';
import { Refusal } from '../../src/egress/refusal.ts';
import { parseAllowPrivate } from '../../src/egress/rules.ts';
import { secretsForHost, substituteHead } from '../../src/egress/substitute.ts';
import { upload } from '../../src/egress/upload.ts';
import { Wire } from '../../src/egress/wire.ts';
import { type NodeRequest, parseAsNode } from '../support/nodeparser.ts';

/** Another one each time; a failing one is run again with FUZZ_SEED. */
const seed = Number(process.env.FUZZ_SEED ?? Date.now() % 2 ** 31);
console.log(`Differential fuzzing of egress: FUZZ_SEED=${seed}`);

const host = 'api.allowed.test';
const access = parseAllowPrivate([]);
const tunnel = { authority: { host, port: 443 }, secure: true };

/** mulberry32: small, and the same everywhere. */
function randomOf(start: number) {
  let state = start | 0;
  const below = (limit: number): number => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % limit;
  };
  const pick = <T>(list: readonly T[]): T => list[below(list.length)] as T;
  const chance = (one: number) => below(one) === 0;
  return { below, pick, chance };
}
type Random = ReturnType<typeof randomOf>;

async function cases(name: string, count: number, check: (random: Random) => unknown): Promise<void> {
  for (let index = 0; index < count; index++) {
    try {
      await check(randomOf(seed + index));
    } catch (error) {
      throw new Error(`${name}, case ${index}: run it again with FUZZ_SEED=${seed + index}`, { cause: error });
    }
  }
}

const transport = (written: Buffer[]) => ({
  write(bytes: Uint8Array) {
    written.push(Buffer.from(bytes));
    return bytes.length;
  },
  end() {},
  terminate() {},
  pause() {},
  resume() {},
});

/** A wire on which all of the text has arrived, in pieces of any size. */
function arrived(bytes: Buffer, random: Random): Wire {
  const wire = new Wire(transport([]));
  const most = random.pick([1, 3, 7, 50, 5000]);
  for (let at = 0; at < bytes.length; ) {
    const size = 1 + random.below(most);
    wire.receive(bytes.subarray(at, at + size));
    at += size;
  }
  return wire;
}

const methods = ['GET', 'POST', 'PUT', 'DELETE', 'OPTIONS', 'PATCH', 'HEAD'];
const oddPieces = [
  ...['\r', '\n', '\r\n', '\r\n\r\n', '\t', ' ', ':', ',', ';', '\0', '\x7f', '\x80', '\xff', '"', '\\', '+', '-', '0'],
  ...['chunked', 'identity', 'Transfer-Encoding: chunked\r\n', 'Content-Length: 3\r\n', 'GET / HTTP/1.1\r\n\r\n'],
  ...['0\r\n\r\n', 'Connection: close\r\n', ' HTTP/1.0', '0x', 'a', 'F', '%2e', '#', '\x0b', '\x0c', '\x85', '\xa0'],
];

function someRequest(random: Random): string {
  const text = () => 'abc ,;="xyz\t1'.slice(random.below(6), 6 + random.below(7)).trim();
  const headers = Array.from({ length: random.below(4) }, () => `X-${random.pick(['A', 'b', 'c_d'])}: ${text()}\r\n`);
  const body = 'body \r\n0\r\n\r\nGET / HTTP/1.1'.slice(0, random.below(30));
  let tail = '';
  if (random.chance(3)) {
    headers.push(`Content-Length: ${body.length}\r\n`);
    tail = body;
  } else if (random.chance(2)) {
    headers.push(
      `${random.pick(['Transfer-Encoding', 'transfer-encoding'])}: ${random.pick(['chunked', 'Chunked'])}\r\n`,
    );
    const extension = random.pick(['', ';a', ';a=b', ';a="b c"']);
    if (body !== '') tail += `${random.pick(['', '0', '00'])}${body.length.toString(16)}${extension}\r\n${body}\r\n`;
    tail += `0\r\n${random.chance(3) ? 'X-T: trailer\r\n' : ''}\r\n`;
  }
  if (random.chance(8)) headers.push(`Connection: ${random.pick(['close', 'keep-alive', 'Close, x'])}\r\n`);
  const version = !headers.join('').includes('hunked') && random.chance(12) ? '1.0' : '1.1';
  const target = random.pick(['/', '/a?b=c', '/%41/x', `https://${host}/x`, '*']);
  const method = target === '*' ? 'OPTIONS' : random.pick(methods);
  return `${method} ${target} HTTP/${version}\r\nHost: ${host}\r\n${headers.join('')}\r\n${tail}`;
}

/** What a session reads off a connection: every whole request up to the first that it refuses or ends at. */
async function parseAsProxy(wire: Wire): Promise<{ requests: NodeRequest[]; refused: boolean }> {
  const requests: NodeRequest[] = [];
  try {
    for (;;) {
      const text = await readHead(wire);
      if (text === null) return { requests, refused: false };
      const head = parseRequestHead(text.startsWith('\r\n') ? text.slice(2) : text);
      locate(head, tunnel, access);
      const decoder = decoderFor(requestFraming(head));
      const body: string[] = [];
      while (!decoder.done) {
        const piece = wire.take();
        if (piece === undefined) return { requests, refused: false };
        wire.unread(piece.subarray(decoder.feed(piece, (data) => body.push(data.toString('latin1')))));
      }
      const { method, target, headers } = head;
      requests.push({
        method,
        target,
        headers: headers.flat(),
        body: body.join(''),
        trailers: decoder.trailers.flat(),
      });
      if (head.version === '1.0' || wordsOf(headers, 'connection').includes('close'))
        return { requests, refused: false };
    }
  } catch (error) {
    if (error instanceof BadMessage || error instanceof Refusal) return { requests, refused: true };
    throw error;
  }
}

/**
 * What node refuses and we let pass, for it is written anew on the way out or says nothing about where a request ends:
 * methods that node does not know, and chunk extensions, which are dropped.
 */
const weAreLaxer = (error: string | null, text: string): boolean =>
  /Invalid method|Expected space after method|chunk extension/i.test(error ?? '') ||
  // A tab behind a value is white space to be dropped (RFC 9110); node knows it for most headers.
  (/invalid `Transfer-Encoding`|Content-Length/.test(error ?? '') && /(?:chunked|: \d+)[ \t]*\t[ \t]*\r/i.test(text));

test('what the proxy reads of a connection is what node reads, byte for byte, or it is refused', async () => {
  let read = 0;
  let refused = 0;
  await cases('parser', 50_000, async (random) => {
    let text = Array.from({ length: 1 + random.below(3) }, () => someRequest(random)).join('');
    const mutations = random.chance(4) ? 0 : 1 + random.below(3);
    for (let count = 0; count < mutations; count++) {
      const at = random.below(text.length + 1);
      text = text.slice(0, at) + random.pick(['', ...oddPieces]) + text.slice(at + random.below(3));
    }
    const bytes = Buffer.from(text, 'latin1');
    const wire = arrived(bytes, random);
    wire.finish();
    const ours = await parseAsProxy(wire);
    const node = parseAsNode(bytes);
    // There node stops and we do not.
    const comparable = weAreLaxer(node.error, text) ? ours.requests.slice(0, node.requests.length) : ours.requests;
    expect(comparable, JSON.stringify({ text, node })).toEqual(node.requests.slice(0, comparable.length));
    if (mutations === 0) expect(ours.refused, text).toBe(false);
    read += ours.requests.length;
    refused += ours.refused ? 1 : 0;
  });
  // The cases are worth something only while both outcomes are common.
  expect(read).toBeGreaterThan(20_000);
  expect(refused).toBeGreaterThan(5_000);
}, 60_000);

const placeholders = ['ph_A', 'ph_AB', 'ph_B', 'h_AB', 'AAB', 'ph_ph_C'];
const values = [
  '',
  'v',
  'valu',
  'value-5',
  'ph_A',
  'a"b\\c\u2028ü',
  'x y&z=%?#/',
  '$&$1',
  'ph_B and a long value that is longer',
];

function someSecrets(random: Random): EgressSecret[] {
  return Array.from({ length: 1 + random.below(4) }, (_, index) => ({
    name: `S${index}`,
    placeholder: random.pick(placeholders),
    value: random.pick(values),
    allowedHosts: random.chance(5) ? ['other.test'] : [host],
    surfaces: surfaces.filter(() => !random.chance(3)),
  }));
}

function someText(random: Random, most: number): string {
  let text = '';
  for (let count = random.below(most); count > 0; count--) {
    const placeholder = random.pick(placeholders);
    const part = random.below(placeholder.length + 1);
    text += random.pick([placeholder, placeholder.slice(0, part), placeholder.slice(part), 'x', '_', 'ph_']);
  }
  return text;
}

const escaped = (text: string) => text.replace(/[$.*+?^()[\]{}|\\/]/g, '\\$&');
const urlForm = (value: string) => encodeURIComponent(value);
const jsonForm = (value: string) => JSON.stringify(value).slice(1, -1);
const rawForm = (value: string) => value;

/** The promise in its plainest form: one pass of a regular expression over the whole text. */
function replaceWhole(text: string, secrets: readonly EgressSecret[], form: (value: string) => string) {
  const known = new Map([...secrets].reverse().map((secret) => [secret.placeholder, secret]));
  if (known.size === 0) return { text, used: new Set<string>() };
  const longestFirst = [...known.keys()].sort((a, b) => b.length - a.length);
  const used = new Set<string>();
  const replaced = text.replace(new RegExp(longestFirst.map(escaped).join('|'), 'g'), (found) => {
    const secret = known.get(found);
    used.add(secret?.name ?? '');
    return form(secret?.value ?? '');
  });
  return { text: replaced, used };
}

const on = (secrets: readonly EgressSecret[], surface: EgressSecret['surfaces'][number]) =>
  secrets.filter((secret) => secret.allowedHosts.includes(host) && secret.surfaces.includes(surface));

test('a head is substituted as one pass over each of its parts would', async () => {
  await cases('head', 50_000, (random) => {
    const secrets = someSecrets(random);
    const { eligible } = secretsForHost(secrets, host, true);
    const [path, query, header, password] = [0, 1, 2, 3].map(() => someText(random, 6)) as [
      string,
      string,
      string,
      string,
    ];
    const basic = (text: string) => `Basic ${Buffer.from(`u:${text}`).toString('base64')}`;
    const hasQuery = random.chance(2);
    const done = substituteHead(
      `/${path}${hasQuery ? `?${query}` : ''}`,
      [
        ['X-A', header],
        ['Authorization', basic(password)],
      ],
      eligible,
    );
    const parts = [
      replaceWhole(path, on(secrets, 'path'), urlForm),
      replaceWhole(hasQuery ? query : '', on(secrets, 'query'), urlForm),
      replaceWhole(header, on(secrets, 'headers'), rawForm),
      replaceWhole(password, on(secrets, 'headers'), rawForm),
    ];
    const [inPath, inQuery, inHeader, inPassword] = parts.map(({ text }) => text);
    const latin1 = (text = '') => Buffer.from(text).toString('latin1');
    expect(done.target).toBe(`/${inPath}${hasQuery ? `?${inQuery}` : ''}`);
    expect(done.headers).toEqual([
      ['X-A', latin1(inHeader)],
      ['Authorization', basic(inPassword ?? '')],
    ]);
    const used = new Set(parts.flatMap((part) => [...part.used]));
    expect(new Set(done.used.map(({ name }) => name))).toEqual(used);
  });
}, 60_000);

const types = [
  ['application/json', jsonForm],
  ['application/x-www-form-urlencoded', urlForm],
  ['text/plain', rawForm],
] as const;

test('a body arrives as one pass over the whole would leave it, in a framing that node reads, or is refused', async () => {
  let refused = 0;
  await cases('body', 20_000, async (random) => {
    const secrets = someSecrets(random);
    const body = someText(random, 12);
    const [type, form] = random.pick(types);
    const chunked = random.chance(2);
    let sent = body;
    let framing = `Content-Length: ${body.length}`;
    if (chunked) {
      framing = 'Transfer-Encoding: chunked';
      sent = '';
      for (let at = 0; at < body.length; ) {
        const size = Math.min(body.length - at, 1 + random.below(9));
        sent += `${size.toString(16)}\r\n${body.slice(at, at + size)}\r\n`;
        at += size;
      }
      sent += '0\r\nX-T: 1\r\n\r\n';
    }
    const head = parseRequestHead(`POST / HTTP/1.1\r\nHost: ${host}\r\nContent-Type: ${type}\r\n${framing}`);
    const rules = secretsForHost(secrets, host, true);
    const passage = new Carried().passage(host, () => rules);
    const plan = planRequest(head, locate(head, tunnel, access), passage);
    const written: Buffer[] = [];
    const upstream = new Wire(transport(written));
    const client = arrived(Buffer.from(`${sent}GET /next`), random);
    let failure: unknown = null;
    if (plan.framing.kind === 'none') upstream.write(plan.headWith(plan.framing));
    else
      await upload(
        client,
        upstream,
        plan,
        () => {},
        () => false,
      ).catch((error: unknown) => (failure = error));

    const known = [...on(secrets, 'body'), ...rules.foreign];
    const expected = replaceWhole(body, known, form);
    const foreign = known.find((secret) => expected.used.has(secret.name) && rules.foreign.includes(secret));
    const bytes = Buffer.concat(written);
    if (foreign !== undefined) {
      refused += 1;
      expect(failure, body).toBeInstanceOf(Refusal);
      expect(parseAsNode(bytes).requests).toEqual([]);
      return;
    }
    expect(failure).toBeNull();
    const { requests, error } = parseAsNode(bytes);
    expect({ error, bodies: requests.map((request) => request.body) }, JSON.stringify({ body, secrets })).toEqual({
      error: null,
      bodies: [Buffer.from(expected.text).toString('latin1')],
    });
    expect(requests[0]?.trailers).toEqual(chunked ? ['X-T', '1'] : []);
    expect(new Set(passage.used)).toEqual(expected.used);
    const rest: string[] = [];
    for (let piece = client.take(); piece !== undefined; piece = client.take()) rest.push(piece.toString());
    expect(rest.join('')).toEndWith('GET /next');
  });
  expect(refused).toBeGreaterThan(1_000);
}, 60_000);
