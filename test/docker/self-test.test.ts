import { expect, test } from 'bun:test';
import { networkInterfaces } from 'node:os';
import { silentLog } from '../../src/kernel/log.ts';
import { openDoors } from '../../src/runner/doors.ts';
import { dockerSandbox } from '../../src/sandbox/docker.ts';
import { imageReference } from '../../src/sandbox/image.ts';
import { selfTest } from '../../src/sandbox/self-test.ts';
import { engine } from '../support/docker-engine.ts';
import { testMs } from '../support/docker-service.ts';
import { temporaryDirectory } from '../support/git.ts';

const installation = `test-${crypto.randomUUID().slice(0, 8)}`;
const limits = { memoryBytes: 128 * 1024 * 1024, cpus: 1, processes: 64 };
const open = () => dockerSandbox({ dockerHost: null, image: imageReference(), installation, log: silentLog });

test(
  'from inside a sandbox nothing is reached but the door, and nothing of the look is left',
  async () => {
    await using directory = await temporaryDirectory();
    const sandbox = open();
    const proof = selfTest({ sandbox, doors: openDoors(directory.path), limits, log: silentLog });
    const { attempts, problem } = await proof.result();
    expect(attempts.filter(({ ok }) => !ok)).toEqual([]);
    expect(problem).toBeNull();

    const targets = (what: string) => attempts.filter((attempt) => attempt.what === what).map(({ target }) => target);
    expect(targets('a network interface')).toHaveLength(1);
    expect(targets('a route')).toHaveLength(1);
    expect(targets('a name server')).toEqual(['example.com', 'host.docker.internal']);
    expect(targets('the metadata service')).toEqual(['169.254.169.254:80']);
    const own = Object.values(networkInterfaces()).flatMap((all) => all ?? []);
    const tried = targets('this machine').map((target) => target?.replace(/^\[?(.*?)\]?:\d+$/, '$1'));
    for (const { address } of own.filter(({ family }) => family === 'IPv4')) expect(tried).toContain(address);
    const { IPAM } = await engine.getNetwork('bridge').inspect();
    const start = IPAM?.Config?.[0]?.Subnet?.replace(/\.\d+\/\d+$/, '.');
    if (start) expect(targets("the engine's gateway").join()).toContain(start);
    for (const what of ['the proxy', 'the gateway']) {
      expect(attempts.find((attempt) => attempt.what === what)?.outcome).toBe('leads to the server');
    }

    expect(await sandbox.leftovers()).toEqual([]);
    const filters = { label: [`slipway.installation=${installation}`] };
    expect(await engine.listContainers({ all: true, filters })).toEqual([]);
    const { Volumes } = await engine.listVolumes({ filters: JSON.stringify(filters) as never });
    expect(Volumes ?? []).toEqual([]);
  },
  testMs,
);

test(
  'a sandbox under test is nobody else’s leftover, so that no reaper takes it away',
  async () => {
    await using directory = await temporaryDirectory();
    const sandbox = open();
    const socketDirectory = await openDoors(directory.path).make('look', 1);
    const looking = sandbox.lookInside({ socketDirectory, limits });
    const seen: unknown[] = [];
    let done = false;
    const watching = (async () => {
      while (!done) seen.push(...(await sandbox.leftovers()));
    })();
    const attempts = await looking;
    done = true;
    await watching;
    expect(seen).toEqual([]);
    expect(attempts.length).toBeGreaterThan(10);
  },
  testMs,
);
