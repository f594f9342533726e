import { describe, expect, setDefaultTimeout, test } from 'bun:test';
import type { Attempt, Sandbox } from '../../src/sandbox/sandbox.ts';
import { temporaryDirectory } from '../support/git.ts';
import { type TestService, testService } from '../support/service.ts';
import { doorOf, echoOrigin, type InTunnel, tunnelTo } from '../support/tunnel.ts';

setDefaultTimeout(30_000);

const host = 'api.example.test';
const [first, second] = ['the-first-value-0123456789', 'the-second-value-9876543210'];

/** A server with an open run that has one secret, and the origin that the secret is for. */
async function openRun(configuration: Record<string, unknown> = {}) {
  const directory = await temporaryDirectory();
  const origin = await echoOrigin(host, directory.path);
  const service = await testService({
    env: origin.env,
    world: { maxGraceMs: 60_000 },
    overrides: { resolve: async (name) => (name === host ? ['127.0.0.1'] : []) },
  });
  const secretId = await service.secret('API_TOKEN', first, [host]);
  const automationId = await service.automation({ workspaceSecretIds: [secretId], ...configuration });
  const runId = await service.start([{ do: 'gate', name: 'open' }, { do: 'ignore_stop' }], automationId);
  await service.world.reached('open');
  const door = await doorOf(service);
  const tunnels: InTunnel[] = [];
  return {
    service,
    origin,
    secretId,
    automationId,
    runId,
    placeholder: service.world.started[0]?.environment.API_TOKEN ?? '',
    async tunnel(): Promise<InTunnel> {
      const tunnel = await tunnelTo(door, host, origin.port);
      if (typeof tunnel === 'number') throw new Error(`refused with ${tunnel}`);
      tunnels.push(tunnel);
      return tunnel;
    },
    /** What the proxy says to a tunnel to the origin. */
    async status(): Promise<number> {
      const tunnel = await tunnelTo(door, host, origin.port);
      if (typeof tunnel === 'number') return tunnel;
      tunnels.push(tunnel);
      return 200;
    },
    door,
    async [Symbol.asyncDispose]() {
      for (const tunnel of tunnels) tunnel[Symbol.dispose]();
      await service[Symbol.asyncDispose]();
      await origin[Symbol.asyncDispose]();
      await directory[Symbol.asyncDispose]();
    },
  };
}
const end = async (service: TestService, runId: string) => {
  service.world.kill(runId);
  return service.finished(runId);
};

describe.concurrent('in an open run', () => {
  test('a rotated secret has its new value at once, under the placeholder that the agent has', async () => {
    await using at = await openRun();
    const before = await at.tunnel();
    expect(await before.ask(at.placeholder)).toBe(200);
    const answer = await at.service.call('PATCH', `/secrets/${at.secretId}`, { value: second });
    expect(answer.status).toBe(200);
    expect(await (await at.tunnel()).ask(at.placeholder)).toBe(200);
    await before.ended;
    expect(at.origin.tokens).toEqual([first, second]);
  });

  test('a deleted secret goes nowhere any more, and its open tunnels are ended', async () => {
    await using at = await openRun();
    const before = await at.tunnel();
    await before.ask(at.placeholder);
    expect((await at.service.call('DELETE', `/secrets/${at.secretId}?detach=true`)).status).toBe(200);
    await before.ended;
    await (await at.tunnel()).ask(at.placeholder).catch(() => {});
    expect(at.origin.tokens.filter((token) => token === first)).toHaveLength(1);
    expect((await end(at.service, at.runId)).failureCategory).not.toBe('configuration_unavailable');
  });

  test('the transcript hides the new value as well as the old one', async () => {
    await using at = await openRun();
    await at.service.call('PATCH', `/secrets/${at.secretId}`, { value: second });
    const process = at.service.world.runs.get(at.runId)?.containers.get(1)?.process;
    process?.print(JSON.stringify({ type: 'message', text: `They are ${first} and ${second}.` }));
    const message = await at.service.event(at.runId, 'message');
    expect(message.data).toEqual({ text: `They are ${at.placeholder} and ${at.placeholder}.` });
    await end(at.service, at.runId);
  });

  test('a secret that was deleted is not missed after a restart of the server', async () => {
    await using at = await openRun();
    await at.service.call('DELETE', `/secrets/${at.secretId}?detach=true`);
    await at.service.restart();
    const process = at.service.world.runs.get(at.runId)?.containers.get(1)?.process;
    process?.print(JSON.stringify({ type: 'message', text: 'I go on.' }));
    process?.end({ code: 0, outOfMemory: false });
    expect(await at.service.finished(at.runId)).toMatchObject({ status: 'succeeded', resultSummary: 'I go on.' });
    // A new turn would begin without what it was made for.
    await at.service.message(at.runId, []);
    expect(await at.service.finished(at.runId)).toMatchObject({ failureCategory: 'configuration_unavailable' });
  });

  test.each(['workspace', 'automation'])(
    'a host that the %s does not allow any more is shut at once',
    async (place) => {
      await using at = await openRun();
      const before = await at.tunnel();
      await before.ask('x');
      const egress = { default: 'deny', hosts: ['other.example'] };
      const change = (list: object) =>
        place === 'workspace'
          ? at.service.call('PATCH', '/workspace', { egress: list })
          : at.service.call('PATCH', `/automations/${at.automationId}`, { configuration: { egress: list } });
      expect((await change(egress)).status).toBe(200);
      await before.ended;
      expect(await at.status()).toBe(403);
      expect((await at.service.event(at.runId, 'egress_denied')).data).toMatchObject({ host });
      await change({ ...egress, hosts: [host] });
      expect(await at.status()).toBe(200);
      await end(at.service, at.runId);
    },
  );

  test('a list that is closed from the beginning keeps the host of a secret out', async () => {
    await using at = await openRun({ egress: { default: 'deny', hosts: [] } });
    expect(await at.status()).toBe(403);
    await end(at.service, at.runId);
  });

  test('a cancel ends open tunnels and shuts the door at once, while the agent still has its grace', async () => {
    await using at = await openRun();
    const before = await at.tunnel();
    await before.ask(at.placeholder);
    await at.service.cancel(at.runId);
    await before.ended;
    expect(at.service.world.runs.get(at.runId)?.containers.get(1)?.process?.dead.aborted).toBe(false);
    await expect(at.tunnel()).rejects.toThrow();
    expect((await at.service.run(at.runId)).status).toBe('running');
    expect((await end(at.service, at.runId)).status).toBe('cancelled');
  });
});

test('the end of the agent ends its tunnels before its changes are looked at', async () => {
  const comparing = Promise.withResolvers<void>();
  const letCompare = Promise.withResolvers<void>();
  const directory = await temporaryDirectory();
  await using origin = await echoOrigin(host, directory.path);
  await using service = await testService({
    env: origin.env,
    overrides: { resolve: async () => ['127.0.0.1'] },
    sandbox: (sandbox) => ({
      ...sandbox,
      async inspect(task) {
        comparing.resolve();
        await letCompare.promise;
        return sandbox.inspect(task);
      },
    }),
  });
  const runId = await service.start([{ do: 'gate', name: 'g' }]);
  await service.world.reached('g');
  const tunnel = await tunnelTo(await doorOf(service), host, origin.port);
  if (typeof tunnel === 'number') throw new Error('refused');
  service.world.gate('g').open();
  await comparing.promise;
  await tunnel.ended;
  letCompare.resolve();
  expect((await service.finished(runId)).status).toBe('succeeded');
  await directory[Symbol.asyncDispose]();
});

describe.concurrent('the self-test', () => {
  const looking = (look: () => Promise<readonly Attempt[]>) => (sandbox: Sandbox) => ({ ...sandbox, lookInside: look });

  test('that reached something refuses every run with its reason', async () => {
    const reached: Attempt = {
      kind: 'network',
      what: 'the internet',
      target: '1.1.1.1:443',
      outcome: 'reached',
      ok: false,
    };
    await using service = await testService({ sandbox: looking(async () => [reached]) });
    for (const run of [await service.played([]), await service.played([])]) {
      expect(run).toMatchObject({ status: 'failed', failureCategory: 'sandbox_unavailable' });
      expect(run.failureMessage).toContain('there is the internet.');
      expect(run.failureMessage).not.toContain('1.1.1.1');
    }
    expect(service.world.started).toEqual([]);
    expect(service.world.runs.size).toBe(0);
  });

  test('is waited for by a run that comes before its result', async () => {
    const looked = Promise.withResolvers<readonly Attempt[]>();
    const asked = Promise.withResolvers<void>();
    const look = () => {
      asked.resolve();
      return looked.promise;
    };
    await using service = await testService({ sandbox: looking(look) });
    const runId = await service.start([]);
    await asked.promise;
    expect(service.world.started).toEqual([]);
    looked.resolve([{ kind: 'network', what: 'a route', target: null, outcome: 'none', ok: true }]);
    expect((await service.finished(runId)).status).toBe('succeeded');
  });
});
