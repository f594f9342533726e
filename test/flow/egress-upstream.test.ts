import { describe, expect, test } from 'bun:test';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Refusal } from '../../src/egress/refusal.ts';
import { connectProxy } from '../support/connect-proxy.ts';
import { type Dialing, greeting, openDialing } from '../support/dialing.ts';

const host = 'api.test';
const address = '93.184.216.1';
const secure = { host, port: 443 };
const alive = () => new AbortController().signal;
const resolve = async () => [address];

async function refusal(dial: Promise<unknown>): Promise<Refusal> {
  const error = await dial.then(
    () => null,
    (thrown: unknown) => thrown,
  );
  if (error instanceof Refusal) return error;
  throw new Error(`Expected a refusal, got ${String(error)}`);
}

const tlsOrigin = async (rig: Dialing, name = host, issuer = rig.trusted) =>
  rig.origin([], 'hello', await issuer.leafFor(name));

describe.each(['http', 'https'] as const)('a proxy at %s://', (scheme) => {
  const proxyTls = async (rig: Dialing) => (scheme === 'https' ? { tls: await rig.trusted.leafFor('127.0.0.1') } : {});

  test('is asked for a tunnel to the vetted address with its credentials, and TLS inside is verified by name', async () => {
    await using rig = await openDialing();
    const port = await tlsOrigin(rig);
    const authorization = `Basic ${Buffer.from('me:p@ss').toString('base64')}`;
    await using proxy = await connectProxy({ portOf: () => port, authorization, ...(await proxyTls(rig)) });
    const url = proxy.url.replace('://', '://me:p%40ss@');
    const dialer = rig.dialer({ resolve, proxyUrlFor: () => url });
    expect(await greeting(await dialer.dial(secure, true, alive()))).toBe('hello');
    expect(proxy.asked).toEqual([`CONNECT ${address}:443`]);
    expect(proxy.credentials).toEqual([authorization]);
    expect(rig.routed).toEqual([]);
  });

  test.each(['wrong name', 'unknown authority'])('does not weaken what is asked of the origin: %s', async (trouble) => {
    await using rig = await openDialing();
    const port =
      trouble === 'wrong name' ? await tlsOrigin(rig, 'other.test') : await tlsOrigin(rig, host, rig.unknown);
    await using proxy = await connectProxy({ portOf: () => port, ...(await proxyTls(rig)) });
    for (const trustProxyDns of [false, true]) {
      const dialer = rig.dialer({ resolve, proxyUrlFor: () => proxy.url, trustProxyDns });
      const { code, message } = await refusal(dialer.dial(secure, true, alive()));
      expect(code).toBe('upstream_untrusted');
      expect(message).toStartWith('The TLS certificate of api.test');
    }
  });

  test('carries what both sides send, in pieces larger than any buffer', async () => {
    await using rig = await openDialing();
    const size = 3 * 1024 * 1024;
    const port = await rig.origin([], 'x'.repeat(size), await rig.trusted.leafFor(host));
    await using proxy = await connectProxy({ portOf: () => port, ...(await proxyTls(rig)) });
    const wire = await rig.dialer({ resolve, proxyUrlFor: () => proxy.url }).dial(secure, true, alive());
    let received = 0;
    while (received < size && (await wire.more())) received += wire.take()?.length ?? 0;
    expect(received).toBe(size);
    wire.destroy();
  });

  test('that does not accept its credentials, or the host, is told from an origin that fails', async () => {
    await using rig = await openDialing();
    await using closed = await connectProxy({ portOf: () => undefined, ...(await proxyTls(rig)) });
    const refused = await refusal(rig.dialer({ resolve, proxyUrlFor: () => closed.url }).dial(secure, true, alive()));
    expect(refused.message).toContain(
      "refuses a tunnel to the host's address on port 443 (403); with SLIPWAY_EGRESS_TRUST_PROXY_DNS",
    );
    await using wary = await connectProxy({ portOf: () => 1, authorization: 'Basic eDp5', ...(await proxyTls(rig)) });
    const url = wary.url.replace('://', '://me:secret@');
    const unknown = await refusal(rig.dialer({ resolve, proxyUrlFor: () => url }).dial(secure, true, alive()));
    expect(unknown.message).toBe("The server's own proxy does not accept the credentials (407).");
  });
});

test('a proxy over TLS is verified itself before it is given credentials', async () => {
  await using rig = await openDialing();
  await using proxy = await connectProxy({ portOf: () => 1, tls: await rig.unknown.leafFor('127.0.0.1') });
  const { code, message } = await refusal(
    rig.dialer({ resolve, proxyUrlFor: () => proxy.url.replace('://', '://me:x@') }).dial(secure, true, alive()),
  );
  expect(code).toBe('upstream_unreachable');
  expect(message).toStartWith("The TLS certificate of the server's own proxy could not be verified");
  expect(proxy.asked).toEqual([]);
});

test("a proxy that speaks in the origin's place is not listened to", async () => {
  await using rig = await openDialing();
  const port = await rig.origin([], '');
  await using proxy = await connectProxy({ portOf: () => port, smuggled: 'HTTP/1.1 200 OK\r\n\r\n' });
  const dialer = rig.dialer({ resolve, proxyUrlFor: () => proxy.url });
  const { message } = await refusal(dialer.dial({ host, port: 80 }, false, alive()));
  expect(message).toBe("The server's own proxy sent more than its answer to CONNECT.");
});

test('a proxy that is not there', async () => {
  await using rig = await openDialing();
  const { message } = await refusal(
    rig.dialer({ resolve, proxyUrlFor: () => 'http://127.0.0.1:1' }).dial(secure, true, alive()),
  );
  expect(message).toBe("The server's own proxy refused the connection, or no way leads there.");
});

test('the end of the run closes a tunnel that the proxy has not answered yet', async () => {
  await using rig = await openDialing();
  const asked = Promise.withResolvers<void>();
  const closed = Promise.withResolvers<void>();
  const silent = Bun.listen({
    hostname: '127.0.0.1',
    port: 0,
    socket: { data: () => asked.resolve(), close: () => closed.resolve() },
  });
  const ending = new AbortController();
  const dialer = rig.dialer({ resolve, proxyUrlFor: () => `http://127.0.0.1:${silent.port}` });
  const dialled = refusal(dialer.dial(secure, true, ending.signal));
  await asked.promise;
  ending.abort();
  await closed.promise;
  expect((await dialled).code).toBe('upstream_unreachable');
  silent.stop(true);
});

describe('which address a name has', () => {
  test('a private one is refused with a proxy as without, however much the proxy is trusted', async () => {
    await using rig = await openDialing();
    await using proxy = await connectProxy({ portOf: () => 1 });
    for (const trustProxyDns of [false, true]) {
      const dialer = rig.dialer({ resolve: async () => ['10.0.0.1'], proxyUrlFor: () => proxy.url, trustProxyDns });
      expect((await refusal(dialer.dial(secure, true, alive()))).code).toBe('private_address');
      expect((await refusal(dialer.dial({ host: '127.0.0.1', port: 80 }, false, alive()))).code).toBe(
        'private_address',
      );
      expect((await refusal(dialer.dial({ host: '127.1', port: 80 }, false, alive()))).code).toBe('bad_request');
    }
    expect(proxy.asked).toEqual([]);
  });

  test('a name that only the proxy could know is refused, unless its answers are trusted', async () => {
    await using rig = await openDialing();
    const port = await tlsOrigin(rig);
    await using proxy = await connectProxy({ portOf: (target) => (target === 'api.test:443' ? port : undefined) });
    const options = { resolve: async () => [], proxyUrlFor: () => proxy.url };
    expect((await refusal(rig.dialer(options).dial(secure, true, alive()))).code).toBe('upstream_unresolved');
    expect(proxy.asked).toEqual([]);
    const trusting = rig.dialer({ ...options, trustProxyDns: true });
    expect(await greeting(await trusting.dial(secure, true, alive()))).toBe('hello');
    expect(proxy.asked).toEqual(['CONNECT api.test:443']);
  });
});

describe('plain http', () => {
  /** An origin that keeps the heads it was sent. */
  async function plainOrigin() {
    const seen: IncomingMessage[] = [];
    const server = createServer((request, response) => {
      seen.push(request);
      response.end('plain');
    });
    await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
    return {
      seen,
      port: (server.address() as AddressInfo).port,
      [Symbol.asyncDispose]: async () => {
        server.closeAllConnections();
        server.close();
      },
    };
  }
  const head = Buffer.from('GET /path?q=1 HTTP/1.1\r\nHost: api.test\r\nX-A: b\r\nConnection: close\r\n\r\n');

  test('goes through a tunnel to the vetted address', async () => {
    await using rig = await openDialing();
    await using origin = await plainOrigin();
    await using proxy = await connectProxy({ portOf: () => origin.port });
    const wire = await rig.dialer({ resolve, proxyUrlFor: () => proxy.url }).dial({ host, port: 80 }, false, alive());
    wire.writeHead(head);
    expect(await greeting(wire)).toStartWith('HTTP/1.1 200 OK');
    expect(proxy.asked).toEqual([`CONNECT ${address}:80`]);
    expect(origin.seen[0]?.url).toBe('/path?q=1');
  });

  test('names its whole address to a proxy that is trusted with names, with the credentials for it alone', async () => {
    await using rig = await openDialing();
    await using origin = await plainOrigin();
    await using proxy = await connectProxy({
      portOf: (target) => (target === 'api.test:80' ? origin.port : undefined),
    });
    const url = proxy.url.replace('://', '://me:x@');
    const dialer = rig.dialer({ resolve, proxyUrlFor: () => url, trustProxyDns: true });
    const wire = await dialer.dial({ host, port: 80 }, false, alive());
    wire.writeHead(head);
    expect(await greeting(wire)).toStartWith('HTTP/1.1 200 OK');
    expect(proxy.asked).toEqual(['GET http://api.test/path?q=1']);
    expect(proxy.credentials).toEqual([`Basic ${Buffer.from('me:x').toString('base64')}`]);
    expect(origin.seen[0]?.headers.host).toBe('api.test');
    expect(origin.seen[0]?.headers['x-a']).toBe('b');
  });
});
