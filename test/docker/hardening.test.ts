import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import { networkInterfaces } from 'node:os';
import path from 'node:path';
import type Docker from 'dockerode';
import { imageReference } from '../../src/sandbox/image.ts';
import { outputsOf } from '../support/docker-api.ts';
import { containerOf, engine, volumesOf, withoutContainers } from '../support/docker-engine.ts';
import { type DockerService, dockerService, testMs } from '../support/docker-service.ts';

const memoryMb = 320;
const processes = 150;
const secretValue = 'the-value-of-the-secret';
const places = ['/workspace', '/state', '/tmp', '/home/agent', '/run/slipway'];

interface Probe {
  readonly interfaces: string[];
  readonly routes: string[];
  readonly routes6: string[];
  readonly resolved: string[];
  readonly connected: Record<string, string>;
  readonly bound: string[];
  readonly listening: Record<string, string[]>;
  readonly writes: Record<string, string>;
  readonly writable: string[];
  readonly overwrites: Record<string, string>;
  readonly exist: string[];
  readonly ids: [number, number, number[]];
  readonly status: Record<string, string>;
  readonly privileges: Record<string, string>;
  readonly sudo: number;
  readonly commands: string[];
  readonly environment: Record<string, string>;
  readonly spawned: { count: number; ended: string };
}

let server: DockerService;
let listener: Bun.TCPSocketListener;
let callers = 0;
let runId: string;
let agent: Docker.ContainerInspectInfo;
let door: Docker.ContainerInspectInfo;
let probe: Probe;

beforeAll(async () => {
  server = await dockerService({
    env: { SLIPWAY_SANDBOX_MEMORY_MB: String(memoryMb), SLIPWAY_SANDBOX_PROCESSES: String(processes) },
  });
  // Something of this machine that waits for a caller, on every address.
  listener = Bun.listen({
    hostname: '0.0.0.0',
    port: 0,
    socket: {
      open(socket) {
        callers += 1;
        socket.end();
      },
      data() {},
    },
  });
  const own = Object.values(networkInterfaces()).flatMap((all) => (all ?? []).map(({ address }) => address));
  const addresses = [...own.filter((address) => !address.startsWith('fe80:')), '172.17.0.1'].flatMap((address) => [
    [address, listener.port],
    [address, 2375],
  ]);
  const outside = ['169.254.169.254', '1.1.1.1', '8.8.8.8'].flatMap((address) => [
    [address, 80],
    [address, 53],
  ]);
  const asked = {
    names: ['example.com', 'host.docker.internal', 'gateway.docker.internal', 'metadata.google.internal'],
    addresses: [...addresses, ...outside],
    places: [...places, '/', '/etc', '/usr', '/opt/slipway', '/opt/harness', '/root', '/var', '/run', '/dev'],
    files: [
      '/etc/passwd',
      '/etc/hosts',
      '/etc/resolv.conf',
      '/etc/hostname',
      '/proc/sys/kernel/core_pattern',
      '/opt/slipway/relay',
    ],
    absent: ['/door', '/var/run/docker.sock', '/run/docker.sock', '/dev/kmsg', '/dev/mem', '/dev/kvm', '/.dockercfg'],
  };
  await server.repository.commit({
    'asked.json': JSON.stringify(asked),
    'probe.py': await Bun.file(path.join(import.meta.dir, '../support/docker-probe.py')).text(),
  });
  const secretId = await server.api.secret('SOME_SECRET', secretValue, ['api.example.com']);
  const looked = Promise.withResolvers<void>();
  const neighbour = await server.start({
    script: { turns: [{ steps: [{ run: '(setsid sleep 98765 > /dev/null 2>&1 &); echo begun' }], answer: 'Done.' }] },
    async before(number) {
      if (number === 2) await looked.promise;
      return undefined;
    },
  });
  await server.api.seen(neighbour.runId, ({ type }) => type === 'tool_result');
  const started = await server.start(
    {
      script: { turns: [{ steps: [{ run: 'python3 probe.py asked.json' }], answer: 'Done.' }] },
      async before(number) {
        if (number === 2) await looked.promise;
        return undefined;
      },
    },
    { workspaceSecretIds: [secretId] },
  );
  runId = started.runId;
  const result = await server.api.seen(runId, ({ type }) => type === 'tool_result');
  probe = JSON.parse(String(result.data?.output));
  agent = await (await containerOf(runId, 'agent')).inspect();
  door = await (await containerOf(runId, 'door')).inspect();
  looked.resolve();
  await Promise.all([server.api.finished(runId), server.api.finished(neighbour.runId)]);
}, testMs);

afterAll(async () => {
  await server?.[Symbol.asyncDispose]();
  listener?.stop(true);
});

describe('the network of a sandbox', () => {
  test('is a loopback interface without any route', () => {
    expect(probe.interfaces).toEqual(['lo']);
    expect(probe.routes).toEqual([]);
    expect(probe.routes6.filter((name) => name !== 'lo')).toEqual([]);
  });

  test('resolves no name', () => {
    expect(new Set(probe.resolved)).toEqual(new Set(['unresolved']));
  });

  test('reaches neither this machine nor the engine, the metadata service or the internet', () => {
    const results = Object.entries(probe.connected);
    expect(results.length).toBeGreaterThan(8);
    expect(results.filter(([, result]) => !['ENETUNREACH', 'ECONNREFUSED', 'EADDRNOTAVAIL'].includes(result))).toEqual(
      [],
    );
    expect(callers).toBe(0);
  });

  test('has the two ports of the door and no other, and the agent cannot take them over', () => {
    expect(probe.listening.tcp).toEqual(['0100007F:0C38', '0100007F:0C39']);
    expect(Object.entries(probe.listening).filter(([kind, ports]) => kind !== 'tcp' && ports.length > 0)).toEqual([]);
    expect(new Set(probe.bound)).toEqual(new Set(['EADDRINUSE']));
  });
});

describe('the agent of a sandbox', () => {
  test('is an unprivileged user that cannot become another', () => {
    expect(probe.ids).toEqual([10001, 10001, [10001]]);
    expect(probe.sudo).not.toBe(0);
    expect(probe.status).toEqual({
      CapInh: '0000000000000000',
      CapPrm: '0000000000000000',
      CapEff: '0000000000000000',
      CapBnd: '0000000000000000',
      CapAmb: '0000000000000000',
      NoNewPrivs: '1',
      Seccomp: '2',
    });
  });

  test('is refused every privilege', () => {
    expect(Object.entries(probe.privileges).filter(([, result]) => result !== 'EPERM')).toEqual([]);
  });

  test('writes to its own places only', () => {
    expect(
      Object.entries(probe.writes)
        .filter(([, result]) => result === 'done')
        .map(([place]) => place),
    ).toEqual(places);
    // Shared memory is memory of the sandbox: it counts towards its limit and ends with it.
    expect(probe.writable).toEqual([...places, '/dev/mqueue', '/dev/shm'].sort());
    expect(Object.values(probe.overwrites)).not.toContain('done');
  });

  test('sees neither the engine nor the sockets of the door', () => {
    expect(probe.exist).toEqual([]);
  });

  test('sees its own processes only: not those of the door, of another run or of this machine', () => {
    expect(probe.commands.join('\n')).toContain('codex');
    expect(probe.commands.filter((command) => /socat|dockerd|98765|bun/.test(command))).toEqual([]);
  });

  test('has placeholders in its environment and no value', () => {
    const { SOME_SECRET, SLIPWAY_GATEWAY_KEY } = probe.environment;
    expect(SOME_SECRET).not.toBe(secretValue);
    expect(SOME_SECRET?.length).toBeGreaterThan(8);
    expect(SLIPWAY_GATEWAY_KEY).toBe('not-a-key');
    for (const value of [secretValue, server.modelKey]) expect(JSON.stringify(probe)).not.toContain(value);
    expect(Object.keys(probe.environment).filter((name) => /OPENAI|DOCKER|MASTER/.test(name))).toEqual([]);
  });

  test('cannot start more processes than it may have', () => {
    expect(probe.spawned.ended).toBe('EAGAIN');
    expect(probe.spawned.count).toBeLessThan(processes);
  });

  test(
    'cannot take more memory than it has, and goes on when a command of it was killed for that',
    async () => {
      const hungry = `python3 -c 'bytearray(${2 * memoryMb} << 20)'; echo "ended $?"`;
      const run = await server.played({
        script: { turns: [{ steps: [{ run: hungry }], answer: 'It was too much.' }] },
      });
      expect(outputsOf(run)[0]).toContain('ended 137');
      expect(run).toMatchObject({ status: 'succeeded', resultSummary: 'It was too much.' });
    },
    testMs,
  );
});

describe('the containers of a run, as the engine has them', () => {
  test('are confined and labelled', () => {
    for (const [role, { HostConfig, Config }] of [
      ['agent', agent],
      ['door', door],
    ] as const) {
      expect(HostConfig).toMatchObject({
        ReadonlyRootfs: true,
        CapDrop: ['ALL'],
        SecurityOpt: ['no-new-privileges'],
        Privileged: false,
        RestartPolicy: { Name: 'no' },
        PidMode: '',
        UTSMode: '',
      });
      expect(HostConfig.CapAdd).toBeNull();
      expect(HostConfig.Devices ?? []).toEqual([]);
      expect(Config.Image).toBe(imageReference());
      expect(Config.Labels).toMatchObject({ 'slipway.run': runId, 'slipway.turn': '1', 'slipway.role': role });
      expect(Config.Labels['slipway.installation']).toMatch(/^[0-9a-f]{8,}$/);
    }
  });

  test('have the limits of the settings', () => {
    expect(agent.HostConfig).toMatchObject({
      Memory: memoryMb * 1024 * 1024,
      MemorySwap: memoryMb * 1024 * 1024,
      NanoCpus: 2e9,
      PidsLimit: processes,
    });
    expect(door.HostConfig.Memory).toBeGreaterThan(0);
    expect(door.HostConfig.PidsLimit).toBeGreaterThan(0);
  });

  test('are given the volumes of the run, and the sockets only to the door', () => {
    expect(door.HostConfig.NetworkMode).toBe('none');
    expect(agent.HostConfig.NetworkMode).toBe(`container:${door.Id}`);
    expect(agent.Mounts.map(({ Type, Destination }) => `${Type} ${Destination}`).sort()).toEqual([
      'volume /state',
      'volume /workspace',
    ]);
    expect(door.Mounts.map(({ Destination, RW }) => [Destination, RW])).toEqual([['/door', false]]);
  });

  test('keep the output of the agent with its size bounded, and none of the door', () => {
    expect(agent.HostConfig.LogConfig).toMatchObject({ Type: 'local', Config: { 'max-size': '1024m' } });
    expect(door.HostConfig.LogConfig?.Type).toBe('none');
  });

  test('are gone after the end, the volumes are kept until they are discarded', async () => {
    await withoutContainers(runId);
    expect(await volumesOf(runId)).toHaveLength(2);
    await server.service.sandbox.discard(runId);
    expect(await volumesOf(runId)).toEqual([]);
    expect(
      (await engine.listContainers({ all: true })).filter(({ Labels }) => Labels['slipway.run'] === runId),
    ).toEqual([]);
  });
});
