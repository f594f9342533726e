import { describe, expect, test } from 'bun:test';
import { lstat, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { ConfigError } from '../../src/config.ts';
import { createEgress } from '../../src/egress/proxy.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { echo, type Handler, openRig, type Peer, secret } from '../support/origin.ts';

const host = 'api.allowed.test';
const other = 'evil.test';
const { placeholder, value } = secret();

const statusOf = (text: string) => Number(/^HTTP\/1\.1 (\d{3}) /.exec(text)?.[1]);
const codeOf = (text: string) => /X-Slipway-Egress: (\S+)/.exec(text)?.[1];

/** A refusal as the client sees it: status, the reason's name, and the sentence in the body. */
async function refusal(peer: Peer): Promise<{ status: number; code: string | undefined; error: string }> {
  const text = await peer.until((all) => /\r\n\r\n\{.*\}$/s.test(all));
  return { status: statusOf(text), code: codeOf(text), error: JSON.parse(text.slice(text.indexOf('{'))).error };
}

describe('inside a tunnel', () => {
  const fine = `Host: ${host}\r\n`;
  test.each([
    [
      'Content-Length together with Transfer-Encoding',
      `POST / HTTP/1.1\r\n${fine}Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n`,
      400,
    ],
    ['two equal Content-Lengths', `POST / HTTP/1.1\r\n${fine}Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc`, 400],
    ['two Content-Lengths in one', `POST / HTTP/1.1\r\n${fine}Content-Length: 3, 3\r\n\r\nabc`, 400],
    ['a negative Content-Length', `POST / HTTP/1.1\r\n${fine}Content-Length: -1\r\n\r\n`, 400],
    ['Transfer-Encoding: xchunked', `POST / HTTP/1.1\r\n${fine}Transfer-Encoding: xchunked\r\n\r\n`, 400],
    [
      'Transfer-Encoding twice',
      `POST / HTTP/1.1\r\n${fine}Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n`,
      400,
    ],
    ['chunks in HTTP/1.0', `POST / HTTP/1.0\r\n${fine}Transfer-Encoding: chunked\r\n\r\n`, 400],
    ['a folded line', `GET / HTTP/1.1\r\n${fine}X-A: b\r\n c\r\n\r\n`, 400],
    ['a space before the colon', `GET / HTTP/1.1\r\n${fine}X-A : b\r\n\r\n`, 400],
    ['a line feed inside a header', `GET / HTTP/1.1\r\n${fine}X-A: b\nX-B: c\r\n\r\n`, 400],
    ['bare line feeds', `GET / HTTP/1.1\nHost: ${host}\n\n`, 400],
    ['a carriage return inside a header', `GET / HTTP/1.1\r\n${fine}X-A: b\rc\r\n\r\n`, 400],
    ['a zero byte', `GET / HTTP/1.1\r\n${fine}X-A: b\0c\r\n\r\n`, 400],
    ['two Hosts', `GET / HTTP/1.1\r\n${fine}Host: ${host}\r\n\r\n`, 400],
    ['no Host', 'GET / HTTP/1.1\r\n\r\n', 400],
    ['the HTTP/2 preface', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 400],
    ['a fragment', `GET /#a HTTP/1.1\r\n${fine}\r\n`, 400],
    ['a bad chunk size', `POST / HTTP/1.1\r\n${fine}Transfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n`, 400],
    [
      'a chunk longer than its size',
      `POST / HTTP/1.1\r\n${fine}Transfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n`,
      400,
    ],
    [
      'a bare line feed after a chunk size',
      `POST / HTTP/1.1\r\n${fine}Transfer-Encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n`,
      400,
    ],
    ['a nested CONNECT', `CONNECT ${other}:443 HTTP/1.1\r\nHost: ${other}:443\r\n\r\n`, 405],
    ['TRACE', `TRACE / HTTP/1.1\r\n${fine}\r\n`, 405],
    ['an unknown expectation', `GET / HTTP/1.1\r\n${fine}Expect: 200-ok\r\n\r\n`, 417],
    ['an absolute target on another host', `GET https://${other}/ HTTP/1.1\r\n${fine}\r\n`, 421],
    ['an absolute target of another scheme', `GET http://${host}/ HTTP/1.1\r\n${fine}\r\n`, 421],
    ['a Host that is not the tunnel', `GET / HTTP/1.1\r\nHost: ${other}\r\n\r\n`, 421],
    ['a Host with another port', `GET / HTTP/1.1\r\nHost: ${host}:80\r\n\r\n`, 421],
    ['headers over 64 KiB', `GET / HTTP/1.1\r\n${fine}X-A: ${'a'.repeat(70_000)}\r\n\r\n`, 431],
    ['headers over 64 KiB without end', `GET / HTTP/1.1\r\n${fine}X-A: ${'a'.repeat(70_000)}`, 431],
  ])('%s is refused and recorded', async (_, message, status) => {
    await using rig = await openRig({ origins: [{ host, handler: echo }] });
    const peer = await rig.tunnel(host);
    peer.send(message);
    const answer = await refusal(peer);
    expect(answer.status).toBe(status);
    expect(await rig.recorded(1)).toMatchObject([
      { host, port: 443, status, decision: 'denied', reason: answer.error },
    ]);
  });

  test.each([
    ['an absolute target of the same origin', `GET https://${host}/x HTTP/1.1\r\n${fine}\r\n`],
    ['a Host with a trailing dot and the usual port', `GET /x HTTP/1.1\r\nHost: ${host.toUpperCase()}.:443\r\n\r\n`],
    ['one empty line before the request', `\r\nGET /x HTTP/1.1\r\n${fine}\r\n`],
  ])('%s is fine', async (_, message) => {
    await using rig = await openRig({ origins: [{ host, handler: echo }] });
    const peer = await rig.tunnel(host);
    peer.send(message);
    expect(await peer.until('"url":"/x"')).toStartWith('HTTP/1.1 200 ');
  });

  test('a refused client that asked for the end of the connection is given it', async () => {
    await using rig = await openRig({
      origins: [{ host, handler: echo }],
      secrets: [secret({ allowedHosts: [other] })],
    });
    const peer = await rig.tunnel(host);
    peer.send(`GET / HTTP/1.1\r\n${fine}Connection: close\r\nX-Key: ${placeholder}\r\n\r\n`);
    expect(statusOf(await peer.end())).toBe(403);
  });

  test('after a refused request without a body the connection goes on', async () => {
    await using rig = await openRig({
      origins: [{ host, handler: echo }],
      secrets: [secret({ allowedHosts: ['x.test'] })],
    });
    const peer = await rig.tunnel(host);
    peer.send(`GET / HTTP/1.1\r\n${fine}X-Key: ${placeholder}\r\n\r\n`);
    expect((await refusal(peer)).status).toBe(403);
    peer.clear();
    peer.send(`GET /next HTTP/1.1\r\n${fine}\r\n`);
    await peer.until('"url":"/next"');
  });
});

describe('CONNECT', () => {
  test.each([
    ['port 22', `CONNECT ${host}:22 HTTP/1.1\r\n\r\n`, 403, 'port_not_allowed'],
    ['no port', `CONNECT ${host} HTTP/1.1\r\n\r\n`, 400, 'bad_request'],
    ['a bad host', 'CONNECT a_b..c:443 HTTP/1.1\r\n\r\n', 400, 'bad_request'],
    ['early data', `CONNECT ${host}:443 HTTP/1.1\r\n\r\n\x16\x03\x01`, 400, 'bad_request'],
    ['a body', `CONNECT ${host}:443 HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc`, 400, 'bad_request'],
    ['https in absolute form', `GET https://${host}/ HTTP/1.1\r\nHost: ${host}\r\n\r\n`, 400, 'bad_request'],
    ['a path', `GET / HTTP/1.1\r\nHost: ${host}\r\n\r\n`, 400, 'bad_request'],
    ['credentials in the target', `GET http://u:p@${host}/ HTTP/1.1\r\nHost: ${host}\r\n\r\n`, 400, 'bad_request'],
    [
      'plain http with another Host',
      `GET http://${host}/ HTTP/1.1\r\nHost: ${other}\r\n\r\n`,
      421,
      'authority_mismatch',
    ],
    ['plain http to port 22', `GET http://${host}:22/ HTTP/1.1\r\nHost: ${host}:22\r\n\r\n`, 403, 'port_not_allowed'],
  ])('with %s is refused', async (_, message, status, code) => {
    await using rig = await openRig({ origins: [] });
    const peer = await rig.connect();
    peer.send(message);
    expect(await refusal(peer)).toMatchObject({ status, code });
    expect(await rig.recorded(1)).toMatchObject([{ status, decision: 'denied', reason: expect.any(String) }]);
  });

  test('a TLS handshake that names another host is cut off', async () => {
    await using rig = await openRig({ origins: [{ host, handler: echo }] });
    await expect(
      rig.tunnel(host, { servername: other, verify: false }).then((peer) => peer.until('x')),
    ).rejects.toThrow();
    expect(await rig.recorded(1)).toMatchObject([{ host, method: null, status: null, decision: 'denied' }]);
  });
});

describe('placeholders', () => {
  const basic = Buffer.from(`u:${placeholder}`).toString('base64');
  test.each([
    ['a header', `GET / HTTP/1.1\r\nHost: ${other}\r\nX-Key: ${placeholder}\r\n\r\n`],
    ["a header's name", `GET / HTTP/1.1\r\nHost: ${other}\r\n${placeholder}: 1\r\n\r\n`],
    ['Basic credentials', `GET / HTTP/1.1\r\nHost: ${other}\r\nAuthorization: Basic ${basic}\r\n\r\n`],
    ['the query', `GET /?k=${placeholder} HTTP/1.1\r\nHost: ${other}\r\n\r\n`],
    ['the path', `GET /${placeholder} HTTP/1.1\r\nHost: ${other}\r\n\r\n`],
    ['the path, percent-encoded', `GET /%73${placeholder.slice(1)} HTTP/1.1\r\nHost: ${other}\r\n\r\n`],
    [
      'a body',
      `POST / HTTP/1.1\r\nHost: ${other}\r\nContent-Length: ${placeholder.length + 4}\r\n\r\nab${placeholder}cd`,
    ],
    [
      'a chunked body, split',
      `POST / HTTP/1.1\r\nHost: ${other}\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n${placeholder.slice(0, 5)}\r\n${(placeholder.length - 5).toString(16)}\r\n${placeholder.slice(5)}\r\n0\r\n\r\n`,
    ],
    [
      'a trailer',
      `POST / HTTP/1.1\r\nHost: ${other}\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX-Key: ${placeholder}\r\n\r\n`,
    ],
  ])('in %s do not reach a host that is not allowed', async (_, message) => {
    let seen = '';
    const handler: Handler = (request, response) => {
      seen += request.url + JSON.stringify(request.rawHeaders);
      request.on('data', (bytes: Buffer) => {
        seen += bytes.toString('latin1');
      });
      request.on('end', () => response.end('ok'));
    };
    await using rig = await openRig({ origins: [{ host: other, handler }], secrets: [secret()] });
    const peer = await rig.tunnel(other);
    peer.send(message);
    const answer = await refusal(peer);
    expect(answer).toMatchObject({ status: 403, code: 'placeholder_not_allowed' });
    expect(answer.error).toContain('API_KEY');
    expect(seen).not.toContain(placeholder);
    expect(seen).not.toContain(value);
    expect(await rig.recorded(1)).toMatchObject([
      { host: other, status: 403, secrets: [], decision: 'denied', reason: answer.error },
    ]);
  });

  test.each(['in absolute form', 'inside a CONNECT'])(
    'do not leave over plain http %s, not even to an allowed host',
    async (form) => {
      let reached = false;
      await using rig = await openRig({
        origins: [
          {
            host,
            plain: true,
            handler: (_, response) => {
              reached = true;
              response.end();
            },
          },
        ],
        secrets: [secret()],
      });
      const peer = await rig.connect();
      const inside = form === 'inside a CONNECT';
      if (inside) {
        peer.send(`CONNECT ${host}:80 HTTP/1.1\r\n\r\n`);
        await peer.until('\r\n\r\n');
        peer.clear();
      }
      peer.send(`GET ${inside ? '' : `http://${host}`}/ HTTP/1.1\r\nHost: ${host}\r\nX-Key: ${placeholder}\r\n\r\n`);
      expect(await refusal(peer)).toMatchObject({ status: 403, code: 'placeholder_without_tls' });
      expect(reached).toBe(false);
      expect(await rig.recorded(1)).toMatchObject([{ host, port: 80, decision: 'denied' }]);
    },
  );

  test('found after the origin has begun to answer, they end the connection and the ledger says why', async () => {
    const handler: Handler = (request, response) => {
      response.writeHead(200);
      response.write('early');
      request.on('data', () => {});
      request.on('end', () => response.end());
    };
    await using rig = await openRig({ origins: [{ host: other, handler }], secrets: [secret()] });
    const peer = await rig.tunnel(other);
    peer.send(`POST / HTTP/1.1\r\nHost: ${other}\r\nContent-Length: 100\r\n\r\nabc`);
    await peer.until('early');
    peer.send(placeholder);
    await peer.end();
    expect(await rig.recorded(1)).toMatchObject([
      { status: 200, decision: 'denied', reason: expect.stringContaining('API_KEY') },
    ]);
  });

  test('a body that ends like the beginning of one arrives whole, trailers too', async () => {
    let seen = '';
    const handler: Handler = (request, response) => {
      request.on('data', (bytes: Buffer) => {
        seen += bytes.toString();
      });
      request.on('end', () => response.end(JSON.stringify(request.trailers)));
    };
    await using rig = await openRig({ origins: [{ host: other, handler }], secrets: [secret()] });
    const peer = await rig.tunnel(other);
    const start = placeholder.slice(0, 9);
    peer.send(
      `POST / HTTP/1.1\r\nHost: ${other}\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n${start}\r\n0\r\nX-T: 1\r\n\r\n`,
    );
    await peer.until('{"x-t":"1"}');
    expect(seen).toBe(start);
  });

  test('a value with a line break is refused instead of being written into a header', async () => {
    await using rig = await openRig({
      origins: [{ host, handler: echo }],
      secrets: [secret({ value: 'two\r\nlines-long' })],
    });
    const peer = await rig.tunnel(host);
    peer.send(`GET / HTTP/1.1\r\nHost: ${host}\r\nX-Key: ${placeholder}\r\n\r\n`);
    expect(await refusal(peer)).toMatchObject({ status: 403, code: 'secret_unusable' });
    expect(JSON.stringify(rig.requests)).not.toContain('lines-long');
  });

  test('two secrets with one placeholder and different hosts do not block each other', async () => {
    await using rig = await openRig({
      origins: [{ host, handler: echo }],
      secrets: [secret({ allowedHosts: ['x.test'] }), secret()],
    });
    const peer = await rig.tunnel(host);
    peer.send(`GET / HTTP/1.1\r\nHost: ${host}\r\nX-Key: ${placeholder}\r\n\r\n`);
    expect(await peer.until('"url"')).toStartWith('HTTP/1.1 200 ');
  });
});

describe('the other side', () => {
  test.each([
    ['127.0.0.1'],
    ['169.254.169.254'],
    ['::ffff:127.0.0.1'],
    ['fd00::1'],
    ['64:ff9b::a00:1'],
    ['2002:a00:1::'],
    ['0.0.0.0'],
  ])('a name that resolves to %s is not reached', async (address) => {
    await using rig = await openRig({ origins: [{ host, handler: echo, addresses: [address] }] });
    const peer = await rig.tunnel(host);
    peer.send(`GET / HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
    const answer = await refusal(peer);
    expect(answer).toMatchObject({ status: 403, code: 'private_address' });
    expect(answer.error).not.toContain(address);
    expect(rig.accepted()).toBe(0);
    expect(await rig.recorded(1)).toMatchObject([{ host, status: 403, decision: 'denied' }]);
  });

  test('of several addresses only the public ones are dialled', async () => {
    await using rig = await openRig({ origins: [{ host, handler: echo, addresses: ['10.0.0.1', '93.184.216.9'] }] });
    const peer = await rig.tunnel(host);
    peer.send(`GET / HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
    expect(await peer.until('"url"')).toStartWith('HTTP/1.1 200 ');
  });

  test('a private address that the settings open is reached', async () => {
    await using rig = await openRig({
      origins: [{ host, handler: echo, addresses: ['10.0.0.1'] }],
      allowPrivate: ['10.0.0.0/24'],
    });
    const peer = await rig.tunnel(host);
    peer.send(`GET / HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
    expect(await peer.until('"url"')).toStartWith('HTTP/1.1 200 ');
  });

  const cut: Handler = (_, response) => {
    response.setHeader('content-length', 100);
    response.write('part', () => response.socket?.destroy());
  };
  test.each([
    ['a certificate of another name', { certificateFor: other, handler: echo }, 'upstream_untrusted'],
    ['a certificate of an unknown authority', { untrusted: true, handler: echo }, 'upstream_untrusted'],
    ['no TLS', { onSocket: (socket: import('node:net').Socket) => void socket.end('no') }, undefined],
    [
      'a connection closed without an answer',
      { handler: ((request) => request.socket.destroy()) as Handler },
      'upstream_failed',
    ],
  ])('%s gives 502, and the value is not sent', async (_, spec, code) => {
    await using rig = await openRig({ origins: [{ host, ...spec }], secrets: [secret()] });
    const peer = await rig.tunnel(host);
    peer.send(`GET / HTTP/1.1\r\nHost: ${host}\r\nX-Key: ${placeholder}\r\n\r\n`);
    const answer = await refusal(peer);
    expect(answer.status).toBe(502);
    if (code) expect(answer.code).toBe(code);
    expect(await rig.recorded(1)).toMatchObject([{ status: 502, decision: 'allowed', reason: answer.error }]);
  });

  test('an unknown name and a closed port give 502', async () => {
    await using rig = await openRig({ origins: [{ host, handler: echo, port: 444 }] });
    for (const [name, code] of [
      ['nowhere.test', 'upstream_unresolved'],
      [host, 'upstream_unreachable'],
    ] as const) {
      const peer = await rig.tunnel(name);
      peer.send(`GET / HTTP/1.1\r\nHost: ${name}\r\n\r\n`);
      expect(await refusal(peer)).toMatchObject({ status: 502, code });
    }
  });

  test('an answer that breaks off ends the connection, so that nobody takes it for whole', async () => {
    await using rig = await openRig({ origins: [{ host, handler: cut }] });
    const peer = await rig.tunnel(host);
    peer.send(`GET / HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
    expect(await peer.end()).toEndWith('part');
    expect(await rig.recorded(1)).toMatchObject([
      { status: 200, bytesDown: 4, reason: expect.stringContaining('middle') },
    ]);
  });

  test('a redirect to another host is the client’s to follow, and its placeholder stays behind', async () => {
    await using rig = await openRig({
      origins: [
        {
          host,
          handler: (_, response) =>
            void response.writeHead(302, { location: `https://${other}/`, 'content-length': 0 }).end(),
        },
        { host: other, handler: echo },
      ],
      secrets: [secret()],
    });
    const first = await rig.tunnel(host);
    first.send(`GET / HTTP/1.1\r\nHost: ${host}\r\nX-Key: ${placeholder}\r\n\r\n`);
    expect(await first.until('\r\n\r\n')).toContain(`location: https://${other}/`);
    const second = await rig.tunnel(other);
    second.send(`GET / HTTP/1.1\r\nHost: ${other}\r\nX-Key: ${placeholder}\r\n\r\n`);
    expect((await refusal(second)).status).toBe(403);
  });
});

describe('limits and set-up', () => {
  test('a connection too many is answered 503', async () => {
    await using rig = await openRig({ origins: [], limits: { connections: 1 } });
    const first = await rig.connect();
    first.send('GET');
    const second = await rig.connect();
    expect(await second.end()).toStartWith('HTTP/1.1 503 ');
  });

  test('a client that does not finish its head is cut off', async () => {
    let now = 1000;
    await using rig = await openRig({ origins: [], limits: { headTimeoutMs: 500, sweepMs: 1 }, now: () => now });
    const peer = await rig.connect();
    peer.send('GET / HT');
    now += 501;
    expect(await peer.end()).toBe('');
  });

  test('a socket path that is too long, or taken by a file, is refused; an old socket is replaced', async () => {
    const directory = await mkdtemp(path.join(tmpdir(), 'slipway-egress-'));
    try {
      const egress = await createEgress({ directory, allowPrivate: [], extraCaFile: null, log: silentLog });
      const open = (socketPath: string) =>
        egress.open({ runId: 'r', socketPath, secrets: [], policies: [], onRequest() {} });
      await expect(open(path.join(directory, 'x'.repeat(108)))).rejects.toThrow('longer than 107 bytes');
      const file = path.join(directory, 'file');
      await writeFile(file, 'kept');
      await expect(open(file)).rejects.toThrow('no socket');
      const socketPath = path.join(directory, 'run.sock');
      const old = Bun.listen({ unix: socketPath, socket: { data() {} } });
      const door = await open(socketPath);
      expect((await lstat(socketPath)).mode & 0o777).toBe(0o666);
      await Promise.all([door.close(), door.close()]);
      expect(await lstat(socketPath).catch(() => null)).toBeNull();
      old.stop(true);
      await egress.close();
    } finally {
      await rm(directory, { recursive: true, force: true });
    }
  });

  test('bad settings are named', async () => {
    const options = { directory: path.join(tmpdir(), 'never-made'), log: silentLog };
    await expect(createEgress({ ...options, allowPrivate: ['1.2.3.4/99'], extraCaFile: null })).rejects.toThrow(
      ConfigError,
    );
    await expect(createEgress({ ...options, allowPrivate: [], extraCaFile: '/nowhere.pem' })).rejects.toThrow(
      'SLIPWAY_EGRESS_EXTRA_CA',
    );
  });

  test('a ledger that throws does not disturb the connection', async () => {
    await using rig = await openRig({
      origins: [{ host, handler: echo }],
      onRequest() {
        throw new Error('full');
      },
    });
    const peer = await rig.tunnel(host);
    for (let round = 0; round < 2; round++) {
      peer.clear();
      peer.send(`GET / HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
      await peer.until('"url"');
    }
  });
});
