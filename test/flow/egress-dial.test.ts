import { describe, expect, test } from 'bun:test';
import path from 'node:path';
import { ConfigError } from '../../src/config.ts';
import { openAuthority } from '../../src/egress/authority.ts';
import { readExtraCa } from '../../src/egress/dial.ts';
import { Refusal } from '../../src/egress/refusal.ts';
import { greeting, openDialing } from '../support/dialing.ts';

const host = 'api.test';
const authority = { host, port: 443 };
const alive = () => new AbortController().signal;

/** The refusal with which a dial fails. */
async function refusal(dial: Promise<unknown>): Promise<Refusal> {
  const error = await dial.then(
    () => null,
    (thrown: unknown) => thrown,
  );
  if (error instanceof Refusal) return error;
  throw new Error(`Expected a refusal, got ${String(error)}`);
}

describe('what is vetted is what is dialled', () => {
  test('a name that turns from public to private is dialled at its public address, and refused the next time', async () => {
    await using rig = await openDialing();
    await rig.origin(['93.184.216.1'], 'hello', await rig.trusted.leafFor(host));
    let asked = 0;
    const dialer = rig.dialer({ resolve: async () => (asked++ === 0 ? ['93.184.216.1'] : ['127.0.0.1']) });
    expect(await greeting(await dialer.dial(authority, true, alive()))).toBe('hello');
    expect(asked).toBe(1);
    expect((await refusal(dialer.dial(authority, true, alive()))).code).toBe('private_address');
    expect(rig.routed).toEqual(['93.184.216.1 443']);
  });

  test('of a name with public and private addresses only the public ones are dialled', async () => {
    await using rig = await openDialing();
    await rig.origin(['10.0.0.1', '::ffff:10.0.0.1', '64:ff9b::a00:1'], 'private');
    await rig.origin(['93.184.216.1'], 'public');
    const dialer = rig.dialer({
      resolve: async () => ['10.0.0.1', '64:ff9b::a00:1', '::ffff:10.0.0.1', '93.184.216.1'],
    });
    expect(await greeting(await dialer.dial({ host, port: 80 }, false, alive()))).toBe('public');
    expect(rig.routed).toEqual(['93.184.216.1 80']);
  });

  test.each(['2130706433', '0x7f.1', '0177.0.0.1', '127.1', '0x08080808'])(
    'the odd notation %s is refused unasked',
    async (odd) => {
      await using rig = await openDialing();
      let asked = 0;
      const dialer = rig.dialer({
        async resolve() {
          asked += 1;
          return ['8.8.8.8'];
        },
      });
      expect((await refusal(dialer.dial({ host: odd, port: 80 }, false, alive()))).status).toBe(400);
      expect(asked).toBe(0);
      expect(rig.routed).toEqual([]);
    },
  );
});

describe('the race', () => {
  test('a dead IPv6 address does not keep IPv4 from being reached', async () => {
    await using rig = await openDialing();
    await rig.origin(['93.184.216.1'], 'four', await rig.trusted.leafFor(host));
    const dialer = rig.dialer({ resolve: async () => ['93.184.216.1', '2606:4700::1'] });
    expect(await greeting(await dialer.dial(authority, true, alive()))).toBe('four');
    expect(rig.routed).toEqual(['2606:4700::1 443', '93.184.216.1 443']);
  });

  test('a connection that hangs in its handshake is closed when the run ends', async () => {
    await using rig = await openDialing();
    const reached = Promise.withResolvers<void>();
    const silent = Promise.withResolvers<void>();
    const hanging = Bun.listen({
      hostname: '127.0.0.1',
      port: 0,
      socket: { open: () => reached.resolve(), data() {}, close: () => silent.resolve() },
    });
    const dialer = rig.dialer({
      resolve: async () => ['93.184.216.1', '93.184.216.2'],
      route: (address, port) => {
        rig.routed.push(`${address} ${port}`);
        return { hostname: '127.0.0.1', port: hanging.port };
      },
      schedule: () => () => {},
    });
    const ending = new AbortController();
    const dialled = refusal(dialer.dial(authority, true, ending.signal));
    await reached.promise;
    ending.abort();
    expect((await dialled).code).toBe('upstream_unreachable');
    await silent.promise;
    expect(rig.routed).toEqual(['93.184.216.1 443']);
    hanging.stop(true);
  });
});

describe('a failure says why', () => {
  test('refused', async () => {
    await using rig = await openDialing();
    const dialer = rig.dialer({ resolve: async () => ['93.184.216.9'] });
    const { code, message } = await refusal(dialer.dial(authority, true, alive()));
    expect(code).toBe('upstream_unreachable');
    expect(message).toBe(
      'No connection to api.test on port 443 could be made: it refused the connection, or no way leads there.',
    );
  });

  test('no such name, and no answer about it', async () => {
    await using rig = await openDialing();
    const unknown = await refusal(rig.dialer({}).dial(authority, true, alive()));
    expect(unknown.message).toBe('The name api.test could not be resolved: there is no such name.');
    const silent = await refusal(
      rig.dialer({ resolve: () => Promise.reject(new Error('SERVFAIL')) }).dial(authority, true, alive()),
    );
    expect(silent.message).toBe('The name api.test could not be resolved: no name server gave an answer.');
  });

  test.each(['wrong name', 'unknown authority', 'expired'] as const)('a certificate: %s', async (trouble) => {
    await using rig = await openDialing();
    const past = () => Date.now() - 1000 * 86_400_000;
    const old = await openAuthority(path.join(rig.directory, 'old'), past);
    const issuer = trouble === 'unknown authority' ? rig.unknown : trouble === 'expired' ? old : rig.trusted;
    await rig.origin(['93.184.216.1'], 'hello', await issuer.leafFor(trouble === 'wrong name' ? 'other.test' : host));
    const dialer = rig.dialer({
      resolve: async () => ['93.184.216.1', '93.184.216.1'],
      extraCa: [rig.trusted.certificate, old.certificate],
    });
    const { code, message } = await refusal(dialer.dial(authority, true, alive()));
    expect(code).toBe('upstream_untrusted');
    const why = {
      'wrong name': 'it is for another name',
      'unknown authority': 'its authority is not trusted here; SLIPWAY_EGRESS_EXTRA_CA of the server adds authorities',
      expired: 'it has expired',
    }[trouble];
    expect(message).toStartWith(`The TLS certificate of api.test could not be verified: ${why} (`);
    // A certificate is the same at every address of a name, so one is enough.
    expect(rig.routed.length).toBe(1);
  });

  test('a connection that ends in the handshake', async () => {
    await using rig = await openDialing();
    const closing = Bun.listen({
      hostname: '127.0.0.1',
      port: 0,
      socket: { open: (socket) => void socket.end(), data() {} },
    });
    const dialer = rig.dialer({
      resolve: async () => ['93.184.216.1'],
      route: () => ({ hostname: '127.0.0.1', port: closing.port }),
    });
    const { code, message } = await refusal(dialer.dial(authority, true, alive()));
    expect(code).toBe('upstream_unreachable');
    expect(message).toEndWith('it broke off the TLS handshake.');
    closing.stop(true);
  });
});

describe('SLIPWAY_EGRESS_EXTRA_CA', () => {
  test('a file may hold several certificates with text between them', async () => {
    await using rig = await openDialing();
    const file = path.join(rig.directory, 'both.pem');
    await Bun.write(file, `first\n${rig.trusted.certificate}\nsecond\n${rig.unknown.certificate}\n`);
    const extraCa = await readExtraCa(file);
    expect(extraCa.length).toBe(2);
    for (const [index, issuer] of [rig.trusted, rig.unknown].entries()) {
      const address = `93.184.216.${index + 1}`;
      await rig.origin([address], 'hello', await issuer.leafFor(host));
      const dialer = rig.dialer({ resolve: async () => [address], extraCa });
      expect(await greeting(await dialer.dial(authority, true, alive()))).toBe('hello');
    }
  });

  test('a certificate that cannot be read is named by its place in the file', async () => {
    await using rig = await openDialing();
    const file = path.join(rig.directory, 'broken.pem');
    await Bun.write(file, `${rig.trusted.certificate}\n-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n`);
    await expect(readExtraCa(file)).rejects.toThrow(
      new ConfigError('SLIPWAY_EGRESS_EXTRA_CA: certificate 2 of 2 in the file cannot be read.'),
    );
  });
});
