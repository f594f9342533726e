import { expect, test } from 'bun:test';
import { homedir } from 'node:os';
import path from 'node:path';
import { ConfigError, readConfig } from '../../src/config.ts';

test('what is fetched for the image is kept in the cache of the user', () => {
  expect(readConfig({}, {}).cacheDir).toBe(path.join(homedir(), '.cache', 'slipway'));
  expect(readConfig({}, { XDG_CACHE_HOME: '/var/cache/me' }).cacheDir).toBe('/var/cache/me/slipway');
});

test("the mirror of Debian's packages is an address, and Debian's own where none is given", () => {
  expect(readConfig({}, {}).debianMirror).toBeNull();
  expect(readConfig({}, { SLIPWAY_DEBIAN_MIRROR: 'http://debian.example/debian/' }).debianMirror).toBe(
    'http://debian.example/debian',
  );
  expect(() => readConfig({}, { SLIPWAY_DEBIAN_MIRROR: 'debian.example' })).toThrow(ConfigError);
});
