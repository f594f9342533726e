import { expect, test } from 'bun:test';
import { type AddressRecord, createResolver, fromHosts, type NameSources } from '../../src/egress/resolve.ts';

const record = (address: string, ttlMs = 60_000): AddressRecord => ({ address, ttlMs });
const never = () => Promise.reject(Object.assign(new Error('no such name'), { code: 'ENOTFOUND' }));

/** A resolver over made-up sources, with a clock that is set by hand and a list of who was asked for what. */
function rig(sources: Partial<NameSources>, options: { mostNames?: number; sourceMs?: number } = {}) {
  const asked: string[] = [];
  const time = { now: 0 };
  const listed = (name: keyof NameSources, usual: NameSources[keyof NameSources]) => (host: string) => {
    asked.push(`${name} ${host}`);
    return (sources[name] ?? usual)(host);
  };
  const resolve = createResolver({
    sources: {
      hosts: listed('hosts', async () => []),
      servers: listed('servers', async () => []),
      system: listed('system', never),
    },
    clock: () => time.now,
    ...options,
  });
  return { resolve, asked, time };
}

test('an answer holds as long as the shortest of its records says, and not longer', async () => {
  const { resolve, asked, time } = rig({ servers: async () => [record('1.1.1.1', 30_000), record('1.0.0.1', 20_000)] });
  expect(await resolve('a.test')).toEqual(['1.1.1.1', '1.0.0.1']);
  time.now = 19_999;
  await resolve('a.test');
  expect(asked).toEqual(['hosts a.test', 'servers a.test']);
  time.now = 20_000;
  await resolve('a.test');
  expect(asked.length).toBe(4);
});

test('a record that holds for no time is asked for every time, one that holds for days every hour', async () => {
  const { resolve, asked, time } = rig({
    servers: async (host) => [record('1.1.1.1', host === 'zero.test' ? 0 : 86_400_000)],
  });
  await resolve('zero.test');
  await resolve('zero.test');
  expect(asked.filter((text) => text === 'servers zero.test').length).toBe(2);
  await resolve('days.test');
  time.now = 3_600_000;
  await resolve('days.test');
  expect(asked.filter((text) => text === 'servers days.test').length).toBe(2);
});

test('of many who ask for one name at the same time, one does', async () => {
  const { promise, resolve: answer } = Promise.withResolvers<readonly AddressRecord[]>();
  const { resolve, asked } = rig({ servers: () => promise });
  const waiting = [resolve('a.test'), resolve('a.test'), resolve('a.test')];
  answer([record('1.1.1.1')]);
  expect(await Promise.all(waiting)).toEqual([['1.1.1.1'], ['1.1.1.1'], ['1.1.1.1']]);
  expect(asked).toEqual(['hosts a.test', 'servers a.test']);
});

test('"no such name" is believed briefly, a failure never', async () => {
  let isBroken = false;
  const { resolve, asked, time } = rig({
    servers: async () => {
      if (isBroken) throw Object.assign(new Error('server failure'), { code: 'ESERVFAIL' });
      return [];
    },
  });
  expect(await resolve('a.test')).toEqual([]);
  const once = asked.length;
  time.now = 4_999;
  await resolve('a.test');
  expect(asked.length).toBe(once);
  time.now = 5_000;
  isBroken = true;
  await expect(resolve('a.test')).rejects.toThrow('server failure');
  await expect(resolve('a.test')).rejects.toThrow('server failure');
  expect(asked.length).toBe(3 * once);
});

test('the hosts file comes first, and what servers do not know the system is asked for', async () => {
  const { resolve, asked } = rig({
    hosts: async (host) => (host === 'written.test' ? [record('10.0.0.1')] : []),
    servers: async () => [],
    system: async () => [record('10.0.0.2')],
  });
  expect(await resolve('written.test')).toEqual(['10.0.0.1']);
  expect(asked).toEqual(['hosts written.test']);
  expect(await resolve('local.test')).toEqual(['10.0.0.2']);
});

test('name servers are not asked for a name without a dot', async () => {
  const { resolve, asked } = rig({ system: async () => [record('10.0.0.2')] });
  expect(await resolve('printer')).toEqual(['10.0.0.2']);
  expect(asked).toEqual(['hosts printer', 'system printer']);
});

test('a source that never answers is given up, and the name is free to be asked for again', async () => {
  const silent = () => new Promise<never>(() => {});
  const { resolve, asked } = rig({ servers: silent }, { sourceMs: 1 });
  await expect(resolve('a.test')).rejects.toThrow('No name server answered in time.');
  await expect(resolve('a.test')).rejects.toThrow('No name server answered in time.');
  expect(asked.filter((text) => text.startsWith('servers')).length).toBe(2);
});

test('the names that are remembered are bounded: those used longest ago are forgotten', async () => {
  const { resolve, asked } = rig({ servers: async () => [record('1.1.1.1')] }, { mostNames: 2 });
  await resolve('a.test');
  await resolve('b.test');
  await resolve('a.test');
  await resolve('c.test');
  asked.length = 0;
  await resolve('a.test');
  expect(asked).toEqual([]);
  await resolve('b.test');
  expect(asked.length).toBe(2);
});

test('a hosts file is read with its aliases, comments and both families', () => {
  const text =
    '127.0.0.1 localhost\n::1\tlocalhost ip6-localhost # home\n# 1.1.1.1 localhost\nnonsense localhost\n10.0.0.9 API.corp.test api\n';
  const addresses = (host: string) => fromHosts(text, host).map(({ address }) => address);
  expect(addresses('localhost')).toEqual(['127.0.0.1', '::1']);
  expect(addresses('api.corp.test')).toEqual(['10.0.0.9']);
  expect(addresses('home')).toEqual([]);
});

test('this machine knows itself by its hosts file', async () => {
  expect(await createResolver()('localhost')).toContain('127.0.0.1');
});
