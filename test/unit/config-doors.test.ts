import { expect, test } from 'bun:test';
import { ConfigError, readConfig } from '../../src/config.ts';
import { doorContainer } from '../../src/sandbox/docker-container.ts';
import type { SandboxSpec } from '../../src/sandbox/sandbox.ts';

const read = (value: string | undefined) => readConfig({}, { SLIPWAY_DOOR_VOLUME: value }).doorVolume;

test('the volume of the doors is a name and a path, and none unless it is set', () => {
  expect(read(undefined)).toBeNull();
  expect(read('slipway-doors:/run/slipway')).toEqual({ name: 'slipway-doors', path: '/run/slipway' });
  expect(read('a.b_2:/x/../doors')).toEqual({ name: 'a.b_2', path: '/doors' });
});

test.each(['doors', 'doors:', ':/doors', 'doors:doors', '/host:/doors', '-d:/doors', 'doors:/doors:ro'])(
  '%s is refused with the form that is wanted',
  (value) => {
    expect(() => read(value)).toThrow(ConfigError);
    expect(() => read(value)).toThrow('SLIPWAY_DOOR_VOLUME must be VOLUME:PATH');
  },
);

test('a door mounts its own directory, or the volume, read-only, and is led to the sockets of its run alone', () => {
  const spec = { runId: 'r', turn: 1, socketDirectory: '/run/slipway/0123' } as SandboxSpec;
  const place = { installation: 'i', image: 'x' };
  const onHost = doorContainer({ ...place, doorVolume: null }, spec);
  expect(onHost.HostConfig?.Binds).toEqual(['/run/slipway/0123:/door:ro']);
  expect(onHost.Cmd?.[0]).toContain('UNIX-CONNECT:/door/proxy.sock,');
  const onVolume = doorContainer({ ...place, doorVolume: { name: 'doors', path: '/run/slipway' } }, spec);
  expect(onVolume.HostConfig?.Binds).toEqual(['doors:/door:ro']);
  expect(onVolume.Cmd?.[0]).toContain('UNIX-CONNECT:/door/0123/gateway.sock,');
  expect(onVolume.Cmd?.[0]).toContain('UNIX-CONNECT:/door/0123/proxy.sock,');
});
