import { describe, expect, test } from 'bun:test';
import { brotliCompressSync, deflateRawSync, deflateSync, gzipSync, zstdCompressSync } from 'node:zlib';
import type { Surface } from '../../src/egress/egress.ts';
import { type Handler, openRig, type Peer, type Rig, secret } from '../support/origin.ts';

const host = 'api.allowed.test';
const other = 'evil.test';
const { placeholder, value } = secret();
const longer = `${value}-and a "longer" tail/ü`;

interface Seen {
  readonly url: string;
  readonly headers: Record<string, string>;
  readonly body: Buffer;
  readonly trailers: Record<string, string>;
}

/** An origin that keeps what it was sent; nothing of it is in the answer. */
function witness() {
  const seen: Seen[] = [];
  const handler: Handler = (request, response) => {
    const parts: Buffer[] = [];
    request.on('data', (bytes: Buffer) => parts.push(bytes));
    request.on('end', () => {
      const headers = request.headers as Record<string, string>;
      const trailers = request.trailers as Record<string, string>;
      seen.push({ url: request.url ?? '', headers, body: Buffer.concat(parts), trailers });
      response.setHeader('content-length', 2);
      response.end('ok');
    });
  };
  return { seen, handler };
}

const withSurfaces = (...surfaces: Surface[]) => secret({ surfaces });

async function status(peer: Peer): Promise<number> {
  const text = await peer.until((all) => /(?:\r\n\r\nok|\r\nok\r\n0\r\n\r\n|\r\n\r\n\{.*\})$/s.test(all));
  peer.clear();
  return Number(/^HTTP\/1\.1 (\d{3})/.exec(text)?.[1]);
}

async function post(rig: Rig, to: string, body: string | Uint8Array, headers: string[] = []): Promise<number> {
  const peer = await rig.tunnel(to);
  const bytes = Buffer.from(body);
  const lines = [`Host: ${to}`, `Content-Length: ${bytes.length}`, ...headers].join('\r\n');
  peer.send(Buffer.concat([Buffer.from(`POST / HTTP/1.1\r\n${lines}\r\n\r\n`), bytes]));
  return status(peer);
}

const basicOf = (text: string) => `Basic ${Buffer.from(`user:${text}`).toString('base64')}`;
const everywhere = (to: string) =>
  `POST /p/${placeholder}?q=${placeholder} HTTP/1.1\r\nHost: ${to}\r\nX-Key: ${placeholder}\r\n` +
  `Authorization: ${basicOf(placeholder)}\r\nContent-Length: ${placeholder.length}\r\n\r\n${placeholder}`;

describe('a surface', () => {
  test.each([
    [[], {}],
    [['headers'], { key: value, basic: basicOf(value) }],
    [['query'], { query: value }],
    [['path'], { path: value }],
    [['body'], { body: value }],
    [['websocket'], {}],
    [
      ['headers', 'query', 'path', 'body'],
      { key: value, basic: basicOf(value), query: value, path: value, body: value },
    ],
  ] as [Surface[], Record<string, string>][])('of %p is the only place where the value is put in', async (on, puts) => {
    const { seen, handler } = witness();
    await using rig = await openRig({ origins: [{ host, handler }], secrets: [withSurfaces(...on)] });
    const peer = await rig.tunnel(host);
    peer.send(everywhere(host));
    expect(await status(peer)).toBe(200);
    expect(seen[0]?.url).toBe(`/p/${puts.path ?? placeholder}?q=${puts.query ?? placeholder}`);
    expect(seen[0]?.headers['x-key']).toBe(puts.key ?? placeholder);
    expect(seen[0]?.headers.authorization).toBe(puts.basic ?? basicOf(placeholder));
    expect(seen[0]?.body.toString()).toBe(puts.body ?? placeholder);
    const [entry] = await rig.recorded(1);
    expect(entry).toMatchObject({ decision: 'allowed', path: `/p/${placeholder}?q=${placeholder}` });
    expect(entry?.secrets).toEqual(Object.keys(puts).length > 0 ? ['API_KEY'] : []);
  });

  test.each([[[]], [['headers', 'query', 'path', 'body', 'websocket']]] as [Surface[]][])(
    'of %p makes no difference where the placeholder must not go',
    async (on) => {
      const { seen, handler } = witness();
      await using rig = await openRig({
        origins: [
          { host: other, handler },
          { host, handler, plain: true },
        ],
        secrets: [withSurfaces(...on)],
      });
      const requests = [
        `GET /${placeholder} HTTP/1.1\r\nHost: HOST\r\n\r\n`,
        `GET /?${placeholder} HTTP/1.1\r\nHost: HOST\r\n\r\n`,
        `GET /%73${placeholder.slice(1)} HTTP/1.1\r\nHost: HOST\r\n\r\n`,
        `GET / HTTP/1.1\r\nHost: HOST\r\nX: ${placeholder}\r\n\r\n`,
        `GET / HTTP/1.1\r\nHost: HOST\r\nAuthorization: ${basicOf(placeholder)}\r\n\r\n`,
        `POST / HTTP/1.1\r\nHost: HOST\r\nContent-Length: ${placeholder.length}\r\n\r\n${placeholder}`,
        `POST / HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-T: ${placeholder}\r\n\r\n`,
      ];
      for (const [at, request] of requests.entries()) {
        const foreign = await rig.tunnel(other);
        foreign.send(request.replace('HOST', other));
        expect([at, await status(foreign)]).toEqual([at, 403]);
        const plain = await rig.connect();
        plain.send(request.replace(' /', ` http://${host}/`).replace('HOST', host));
        expect([at, await status(plain)]).toEqual([at, 403]);
      }
      expect(seen).toEqual([]);
      for (const entry of await rig.recorded(2 * requests.length)) {
        expect(entry).toMatchObject({ decision: 'denied', status: 403, secrets: [] });
        expect(entry.reason).toContain('The placeholder of API_KEY was sent to ');
      }
    },
  );

  test('is each secret its own: of two in one body only the one with it goes', async () => {
    const { seen, handler } = witness();
    const quiet = secret({ name: 'QUIET', placeholder: 'ph_QUIET00000000', value: 'vv_QUIET00000000' });
    await using rig = await openRig({ origins: [{ host, handler }], secrets: [withSurfaces('body'), quiet] });
    expect(await post(rig, host, `${placeholder} ${quiet.placeholder}`)).toBe(200);
    expect(seen[0]?.body.toString()).toBe(`${value} ${quiet.placeholder}`);
    expect((await rig.recorded(1))[0]?.secrets).toEqual(['API_KEY']);
  });
});

describe('a body', () => {
  const open = async (over = {}) => {
    const { seen, handler } = witness();
    const rig = await openRig({
      origins: [
        { host, handler },
        { host: other, handler },
      ],
      secrets: [secret({ surfaces: ['body'], ...over })],
    });
    return { rig, seen };
  };

  test('keeps its Content-Length when the value is as long as its placeholder', async () => {
    const { rig, seen } = await open();
    await using _ = rig;
    const text = `${'x'.repeat(300_000)}${placeholder}${'y'.repeat(300_000)}`;
    expect(await post(rig, host, text)).toBe(200);
    expect(seen[0]?.headers['content-length']).toBe(String(text.length));
    expect(seen[0]?.body.toString()).toBe(text.replace(placeholder, value));
  });

  test('is given a new Content-Length up to 256 KiB, and is chunked beyond', async () => {
    const { rig, seen } = await open({ value: longer });
    await using _ = rig;
    for (const size of [10, 256 * 1024 - placeholder.length, 256 * 1024]) {
      expect(await post(rig, host, 'x'.repeat(size) + placeholder)).toBe(200);
    }
    const [small, full, large] = seen;
    const length = (size: number) => String(size + Buffer.byteLength(longer));
    expect(small?.headers['content-length']).toBe(length(10));
    expect(full?.headers['content-length']).toBe(length(256 * 1024 - placeholder.length));
    expect(large?.headers['content-length']).toBeUndefined();
    expect(large?.headers['transfer-encoding']).toBe('chunked');
    for (const { body } of seen) expect(body.toString()).toEndWith(longer);
  });

  test('that long values would make huge goes on in chunks, whatever length it had', async () => {
    const { rig, seen } = await open({ value: 'v'.repeat(20_000) });
    await using _ = rig;
    expect(await post(rig, host, placeholder.repeat(400))).toBe(200);
    expect(seen[0]?.headers['transfer-encoding']).toBe('chunked');
    expect(seen[0]?.body.equals(Buffer.alloc(8_000_000, 'v'))).toBe(true);
  });

  test('in chunks of one byte is put together, and its trailers are kept', async () => {
    const { rig, seen } = await open({ value: longer });
    await using _ = rig;
    const peer = await rig.tunnel(host);
    const body = `a ${placeholder} b ${placeholder}`;
    peer.send(`POST / HTTP/1.1\r\nHost: ${host}\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n`);
    for (const byte of body) peer.send(`1\r\n${byte}\r\n`);
    peer.send(`0\r\nX-T: ${placeholder}\r\n\r\n`);
    expect(await status(peer)).toBe(200);
    expect(seen[0]?.body.toString()).toBe(`a ${longer} b ${longer}`);
    expect(seen[0]?.headers['transfer-encoding']).toBe('chunked');
    expect(seen[0]?.trailers['x-t']).toBe(placeholder);
    peer.send(`POST / HTTP/1.1\r\nHost: ${host}\r\nContent-Length: 2\r\n\r\nhi`);
    expect(await status(peer)).toBe(200);
    expect(seen[1]?.body.toString()).toBe('hi');
  });

  test.each([
    ['application/json', JSON.stringify({ key: longer }), JSON.stringify({ key: placeholder })],
    ['application/vnd.api+json; charset=utf-8', JSON.stringify([longer]), JSON.stringify([placeholder])],
    ['application/x-ndjson', `{"a":${JSON.stringify(longer)}}\n`, `{"a":"${placeholder}"}\n`],
    ['application/x-www-form-urlencoded', `a=1&key=${encodeURIComponent(longer)}`, `a=1&key=${placeholder}`],
    ['text/plain', `key ${longer}`, `key ${placeholder}`],
    ['multipart/form-data; boundary=b', `--b\r\n\r\n${longer}\r\n--b--`, `--b\r\n\r\n${placeholder}\r\n--b--`],
  ])('of %s takes the value in its own encoding', async (type, expected, body) => {
    const { rig, seen } = await open({ value: longer });
    await using _ = rig;
    expect(await post(rig, host, body, [`Content-Type: ${type}`])).toBe(200);
    expect(seen[0]?.body.toString()).toBe(expected);
    expect(seen[0]?.headers['content-length']).toBe(String(Buffer.byteLength(expected)));
  });

  test('that waits for 100 Continue is read, replaced and sent with the right length', async () => {
    const { rig, seen } = await open({ value: longer });
    await using _ = rig;
    const peer = await rig.tunnel(host);
    peer.send(
      `POST / HTTP/1.1\r\nHost: ${host}\r\nExpect: 100-continue\r\nContent-Length: ${placeholder.length}\r\n\r\n`,
    );
    await peer.until('HTTP/1.1 100 Continue\r\n\r\n');
    peer.clear();
    peer.send(placeholder);
    expect(await status(peer)).toBe(200);
    expect(seen[0]?.body.toString()).toBe(longer);
    expect(seen[0]?.headers.expect).toBeUndefined();
  });

  const codings: [string, (text: string) => Buffer][] = [
    ['gzip', gzipSync],
    ['x-gzip', gzipSync],
    ['deflate', deflateSync],
    ['deflate', deflateRawSync],
    ['br', brotliCompressSync],
    ['zstd', zstdCompressSync],
  ];
  test.each(codings)('in %s passes as it is where the secret may go, and is searched elsewhere', async (name, code) => {
    const { rig, seen } = await open();
    await using _ = rig;
    const headers = [`Content-Encoding: ${name}`];
    const hidden = code(`${'x'.repeat(100_000)}${placeholder}${'y'.repeat(1000)}`);
    expect(hidden.includes(placeholder)).toBe(false);
    expect(await post(rig, host, hidden, headers)).toBe(200);
    expect(seen[0]?.body.equals(hidden)).toBe(true);
    expect(await post(rig, other, hidden, headers)).toBe(403);
    const harmless = code('nothing to see');
    expect(await post(rig, other, harmless, headers)).toBe(200);
    expect(seen[1]?.body.equals(harmless)).toBe(true);
    expect((await rig.recorded(3)).map(({ decision }) => decision)).toEqual(['allowed', 'denied', 'allowed']);
  });

  test('in gzip that arrives byte by byte is searched, and its last byte does not leave', async () => {
    const { rig, seen } = await open();
    await using _ = rig;
    const peer = await rig.tunnel(other);
    const hidden = gzipSync(`${placeholder} and more`);
    peer.send(
      `POST / HTTP/1.1\r\nHost: ${other}\r\nContent-Encoding: gzip\r\nContent-Length: ${hidden.length}\r\n\r\n`,
    );
    for (const byte of hidden) peer.send(Buffer.from([byte]));
    expect(await status(peer)).toBe(403);
    expect(seen).toEqual([]);
  });

  test.each([
    ['an unknown encoding', 'compress', Buffer.from('abc')],
    ['two encodings', 'gzip, br', brotliCompressSync(gzipSync('x'))],
    ['another encoding than it says', 'gzip', Buffer.from('no gzip at all')],
    ['a cut encoding', 'gzip', gzipSync('x'.repeat(1000)).subarray(0, 20)],
    ['placeholders behind the compressed part', 'gzip', Buffer.concat([gzipSync('x'), Buffer.from(placeholder)])],
  ])('with %s does not leave where a placeholder could hide in it', async (_name, coding, body) => {
    const { rig, seen } = await open();
    await using _ = rig;
    expect(await post(rig, other, body, [`Content-Encoding: ${coding}`])).toBe(403);
    expect(seen).toEqual([]);
    expect((await rig.recorded(1))[0]).toMatchObject({ decision: 'denied', status: 403 });
    expect(await post(rig, host, body, [`Content-Encoding: ${coding}`])).toBe(200);
  });

  test('with a placeholder whose last byte never comes is cut off, and the origin has not seen it whole', async () => {
    const { rig, seen } = await open();
    await using _ = rig;
    const peer = await rig.tunnel(other);
    peer.send(`POST / HTTP/1.1\r\nHost: ${other}\r\nContent-Length: 1000\r\n\r\n${placeholder.slice(0, -1)}`);
    peer.send(placeholder.slice(-1));
    expect(await status(peer)).toBe(403);
    expect(seen).toEqual([]);
  });
});

test('headers that long values would make huge are refused', async () => {
  const { seen, handler } = witness();
  await using rig = await openRig({ origins: [{ host, handler }], secrets: [secret({ value: 'v'.repeat(60_000) })] });
  const peer = await rig.tunnel(host);
  peer.send(`GET / HTTP/1.1\r\nHost: ${host}\r\n${`X: ${placeholder}\r\n`.repeat(20)}\r\n`);
  expect(await status(peer)).toBe(403);
  expect(seen).toEqual([]);
});

describe('a path', () => {
  const odd = 'a/b?c%d#e ü';
  test('takes the value percent-encoded', async () => {
    const { seen, handler } = witness();
    await using rig = await openRig({
      origins: [{ host, handler }],
      secrets: [secret({ value: odd, surfaces: ['path', 'query'] })],
    });
    const peer = await rig.tunnel(host);
    peer.send(`GET /bot${placeholder}/send?a=${placeholder} HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
    expect(await status(peer)).toBe(200);
    expect(seen[0]?.url).toBe(`/bot${encodeURIComponent(odd)}/send?a=${encodeURIComponent(odd)}`);
  });

  test.each(['.', '..'])('does not take the value %p, which would be a step and no name', async (step) => {
    const { seen, handler } = witness();
    await using rig = await openRig({
      origins: [{ host, handler }],
      secrets: [secret({ value: step, surfaces: ['path'] })],
    });
    const peer = await rig.tunnel(host);
    peer.send(`GET /a/${placeholder}/b HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
    expect(await status(peer)).toBe(403);
    expect(seen).toEqual([]);
  });

  test.each([
    '/..',
    '/.',
    '/a/../b',
    '/a/./b',
    '/%2e%2e/b',
    '/a/.%2E',
    '/a/..%2fb',
    '/a%2F..%2fb',
    '/a\\..\\b',
    '/a/..;x=1/b',
    `/a/../${placeholder}`,
  ])('with a dot segment is refused: %p', async (target) => {
    const { seen, handler } = witness();
    await using rig = await openRig({ origins: [{ host, handler }], secrets: [withSurfaces('path')] });
    const peer = await rig.tunnel(host);
    peer.send(`GET ${target} HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
    expect(await status(peer)).toBe(400);
    expect(seen).toEqual([]);
    expect(await rig.recorded(1)).toMatchObject([{ decision: 'denied', status: 400, path: target }]);
  });

  test.each(['/...', '/.well-known/x', '/a..b/c.', '/a?x=/../b', '/v1.0/..a', '/%252e%252e/b'])(
    'that only looks like a dot segment is fine: %p',
    async (target) => {
      const { seen, handler } = witness();
      await using rig = await openRig({ origins: [{ host, handler }], secrets: [] });
      const peer = await rig.tunnel(host);
      peer.send(`GET ${target} HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
      expect(await status(peer)).toBe(200);
      expect(seen[0]?.url).toBe(target);
    },
  );
});

describe('a placeholder that the client has encoded', () => {
  const percent = [...Buffer.from(placeholder)].map((byte) => `%${byte.toString(16)}`).join('');
  const unicode = [...placeholder].map((c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`).join('');
  const base64 = Buffer.from(placeholder).toString('base64');
  test('is no way for the value: it leaves as it is, towards the allowed host', async () => {
    const { seen, handler } = witness();
    await using rig = await openRig({
      origins: [{ host, handler }],
      secrets: [withSurfaces('headers', 'query', 'path', 'body')],
    });
    const peer = await rig.tunnel(host);
    const body = JSON.stringify({ percent, base64 }).replace('}', `,"unicode":"${unicode}"}`);
    const headers = [`X-B: ${base64}`, `X-P: ${percent}`, `X-D: Basic ${Buffer.from(base64).toString('base64')}`];
    peer.send(
      `POST /${percent}/%25${percent.slice(1)}?q=${percent} HTTP/1.1\r\nHost: ${host}\r\n${headers.join('\r\n')}\r\n` +
        `Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
    );
    expect(await status(peer)).toBe(200);
    const all = JSON.stringify(seen) + (seen[0]?.body.toString() ?? '');
    for (const form of [value, Buffer.from(value).toString('base64').slice(0, -4), encodeURIComponent(value)]) {
      expect(all).not.toContain(form);
    }
    expect(seen[0]?.body.toString()).toBe(body);
    expect((await rig.recorded(1))[0]?.secrets).toEqual([]);
  });
});
