import { describe, expect, test } from 'bun:test';
import { ConfigError, readConfig } from '../../src/config.ts';
import { parseProxy, proxyUrls } from '../../src/egress/upstream-proxy.ts';

const configured = (env: Record<string, string>) => readConfig({}, env).upstreamProxy;

describe('NO_PROXY', () => {
  test.each([
    ['*', 'anything.test', 443, true],
    ['api.test', 'api.test', 443, true],
    ['api.test', 'x.api.test', 443, true],
    ['.api.test', 'x.api.test', 443, true],
    ['.api.test', 'api.test', 443, true],
    ['*.api.test', 'x.api.test', 443, true],
    ['API.Test', 'api.test', 443, true],
    ['api.test', 'notapi.test', 443, false],
    ['api.test:8443', 'api.test', 8443, true],
    ['api.test:8443', 'api.test', 443, false],
    ['10.0.0.0/8', '10.1.2.3', 443, true],
    ['10.0.0.0/8', '11.1.2.3', 443, false],
    ['10.0.0.0/8', 'api.test', 443, false],
    ['10.0.0.1', '10.0.0.1', 80, true],
    ['0.0.1', '10.0.0.1', 80, false],
    ['10.0.0.1:80', '10.0.0.1', 80, true],
    ['fd00::1', 'fd00::1', 443, true],
    ['[fd00::1]:443', 'fd00::1', 443, true],
    ['[fd00::1]:443', 'fd00::1', 80, false],
    ['fd00::/8', 'fd00::5', 443, true],
    ['.', 'api.test', 443, false],
  ])('%s excepts %s:%d: %p', (entry, host, port, excepted) => {
    const urlFor = proxyUrls({ https: 'http://p/', http: null, noProxy: [entry] });
    expect(urlFor({ host, port, secure: true })).toBe(excepted ? null : 'http://p/');
  });
});

test.each(['localhost', '127.0.0.1', '127.9.9.9', '::1', '::ffff:127.0.0.1'])(
  '%s is never asked of a proxy',
  (host) => {
    expect(
      proxyUrls({ https: 'http://p/', http: 'http://p/', noProxy: [] })({ host, port: 80, secure: false }),
    ).toBeNull();
  },
);

test('TLS and plain requests each have their own proxy', () => {
  const urlFor = proxyUrls({ https: 'http://a/', http: 'http://b/', noProxy: [] });
  expect(urlFor({ host: 'h', port: 443, secure: true })).toBe('http://a/');
  expect(urlFor({ host: 'h', port: 80, secure: false })).toBe('http://b/');
  expect(proxyUrls({ https: 'http://a/', http: null, noProxy: [] })({ host: 'h', port: 80, secure: false })).toBeNull();
});

test('a proxy is read with its usual port and its credentials', () => {
  expect(parseProxy('http://proxy.test')).toEqual({
    host: 'proxy.test',
    port: 80,
    isSecure: false,
    authorization: null,
  });
  expect(parseProxy('https://u:p%3Aw%40@[fd00::1]:3129/')).toEqual({
    host: 'fd00::1',
    port: 3129,
    isSecure: true,
    authorization: `Basic ${Buffer.from('u:p:w@').toString('base64')}`,
  });
});

describe('the settings', () => {
  test('are read in either spelling, lower case first', () => {
    expect(configured({ HTTPS_PROXY: 'http://a:1', https_proxy: 'http://b:2', HTTP_PROXY: 'c.test:3' })).toEqual({
      https: 'http://b:2/',
      http: 'http://c.test:3/',
      noProxy: [],
    });
    expect(configured({ NO_PROXY: ' a.test, 10.0.0.0/8 [::1]:80,' }).noProxy).toEqual([
      'a.test',
      '10.0.0.0/8',
      '[::1]:80',
    ]);
    expect(configured({})).toEqual({ https: null, http: null, noProxy: [] });
  });

  test.each([
    [{ HTTPS_PROXY: 'socks5://me:hush@p:1' }, 'HTTPS_PROXY must be an http:// or https:// address of a proxy'],
    [{ HTTP_PROXY: 'http://me:hush@p:1/path' }, 'HTTP_PROXY must be the address of a proxy without a path'],
    [{ HTTPS_PROXY: 'http://me:hush@' }, 'HTTPS_PROXY must be an http:// or https:// address of a proxy'],
    [{ https_proxy: 'http://me:hush%@p:1' }, 'HTTPS_PROXY holds credentials with a lone "%"'],
    [{ no_proxy: 'http://hush' }, 'NO_PROXY must be a list'],
    [{ SLIPWAY_EGRESS_TRUST_PROXY_DNS: 'hush' }, 'SLIPWAY_EGRESS_TRUST_PROXY_DNS must be true or false.'],
    [
      { SLIPWAY_EGRESS_HEADER_BYTES: 'hush' },
      'SLIPWAY_EGRESS_HEADER_BYTES must be a whole number from 4096 to 1048576.',
    ],
    [{ SLIPWAY_EGRESS_IDLE_SECONDS: '-1' }, 'SLIPWAY_EGRESS_IDLE_SECONDS must be a whole number from 0 to 604800.'],
    [{ SLIPWAY_EGRESS_MAX_CONNECTIONS: '0' }, 'SLIPWAY_EGRESS_MAX_CONNECTIONS must be a whole number from 1 to 65536.'],
  ] as [Record<string, string>, string][])('%p is refused without its credentials in the message', (env, message) => {
    let thrown: unknown;
    try {
      readConfig({}, env);
    } catch (error) {
      thrown = error;
    }
    expect(thrown).toBeInstanceOf(ConfigError);
    expect(String(thrown)).toContain(message);
    expect(String(thrown)).not.toContain('hush');
  });

  test('of limits have sound values when nothing is said, and seconds become milliseconds', () => {
    expect(readConfig({}, {}).egressLimits).toEqual({
      connections: 512,
      headBytes: 65_536,
      headTimeoutMs: 120_000,
      idleMs: 900_000,
      maxBytesUp: 0,
      maxBytesDown: 0,
    });
    const set = readConfig({}, { SLIPWAY_EGRESS_IDLE_SECONDS: '60', SLIPWAY_EGRESS_MAX_BYTES_UP: '1000' }).egressLimits;
    expect([set.idleMs, set.maxBytesUp]).toEqual([60_000, 1000]);
  });
});
