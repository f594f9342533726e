import { describe, expect, test } from 'bun:test';
import { table } from '../../src/cli/sandbox.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { type Attempt, type Sandbox, SandboxFailure } from '../../src/sandbox/sandbox.ts';
import { problemOf, provenSandbox, selfTest } from '../../src/sandbox/self-test.ts';

const attempt = (change: Partial<Attempt> = {}): Attempt => ({
  kind: 'network',
  what: 'the metadata service',
  target: '169.254.169.254:80',
  outcome: 'reached',
  ok: false,
  ...change,
});
const fine = attempt({ outcome: 'Network is unreachable', ok: true });

/** A self-test whose looks the test answers, and the sandboxes that were started and the sockets that were made. */
function setUp() {
  const looks: PromiseWithResolvers<readonly Attempt[]>[] = [];
  const started: string[] = [];
  const sockets: string[] = [];
  const limits = { memoryBytes: 1, cpus: 1, processes: 1 };
  const sandbox = {
    lookInside: () => {
      const look = Promise.withResolvers<readonly Attempt[]>();
      looks.push(look);
      return look.promise;
    },
    start: async ({ runId }: { runId: string }) => void started.push(runId),
  } as unknown as Sandbox;
  const doors = {
    make: async () => `made ${sockets.push('made')}`,
    remove: async () => void sockets.push('removed'),
  };
  const proof = selfTest({ sandbox, doors, limits, log: silentLog });
  const proven = provenSandbox(sandbox, proof);
  const start = (runId: string) => proven.start({ runId } as Parameters<Sandbox['start']>[0]);
  return { looks, started, sockets, proof, start };
}
/** Lets everything that waits for nothing more run. */
const settle = () => new Promise((resolve) => setImmediate(resolve));

describe('a run', () => {
  test('that comes before the result waits for it, and one look is enough for all', async () => {
    const at = setUp();
    const starts = [at.start('a'), at.start('b'), at.proof.result()];
    await settle();
    expect(at.started).toEqual([]);
    at.looks[0]?.resolve([fine]);
    await Promise.all(starts);
    await at.start('c');
    expect(at.started).toEqual(['a', 'b', 'c']);
    expect(at.looks).toHaveLength(1);
    expect(at.sockets).toEqual(['made', 'removed']);
  });

  test('goes on when a door that did not answer does at the next look', async () => {
    const at = setUp();
    const start = at.start('a');
    await settle();
    at.looks[0]?.resolve([fine, attempt({ kind: 'means', what: "the proxy's port", target: null })]);
    await settle();
    at.looks[1]?.resolve([fine]);
    await start;
    expect(at.started).toEqual(['a']);
    expect(at.looks).toHaveLength(2);
  });

  test('is refused when the sandbox is not closed off, for as long as the server lives', async () => {
    const at = setUp();
    const first = at.start('a');
    await settle();
    at.looks[0]?.resolve([fine, attempt()]);
    for (const start of [first, at.start('b')]) {
      const error = await start.catch((reason: unknown) => reason);
      expect(error).toBeInstanceOf(SandboxFailure);
      expect(error).toMatchObject({ reason: 'unavailable', message: expect.stringContaining('the metadata service') });
    }
    expect(at.started).toEqual([]);
    expect(at.looks).toHaveLength(1);
  });

  test('is told why no sandbox could be looked at, and the next one looks again', async () => {
    const at = setUp();
    const first = at.start('a');
    await settle();
    at.looks[0]?.reject(new SandboxFailure('image_missing', 'Build it.'));
    await expect(first).rejects.toMatchObject({ reason: 'image_missing', message: 'Build it.' });
    const second = at.start('b');
    await settle();
    at.looks[1]?.resolve([fine]);
    await second;
    expect(at.started).toEqual(['b']);
    expect(at.sockets).toEqual(['made', 'removed', 'made', 'removed']);
  });
});

describe('what is wrong', () => {
  test('is nothing where every attempt is as it should be', () => {
    expect(problemOf([fine, attempt({ kind: 'door', ok: true })])).toBeNull();
  });

  test.each<[string, Attempt[], string[]]>([
    ['nothing was tried', [], ['could not be looked at']],
    ['the means failed', [fine, attempt({ kind: 'means' })], ['could not be looked at', 'sandbox build']],
    ['the door is closed', [attempt({ kind: 'door', what: 'the proxy' })], ['the proxy of the server', 'DOOR_VOLUME']],
    ['it is another user', [attempt({ kind: 'user' })], ['its own user', 'sandbox build']],
    [
      'several things were reached, one of them twice',
      [attempt(), attempt(), attempt({ what: 'a route' }), attempt({ what: 'the internet' })],
      ['there is the metadata service, a route and the internet.', 'sandbox check'],
    ],
  ])('is told with its mend and without an address when %s', (_, attempts, parts) => {
    const problem = problemOf(attempts);
    for (const part of parts) expect(problem).toContain(part);
    expect(problem).not.toMatch(/\d+\.\d+/);
  });
});

test('the table has a line for each attempt, in columns, and marks the bad ones', () => {
  expect(table([fine, attempt({ what: 'a route', target: null, outcome: 'eth0' })])).toEqual([
    '     Tried from inside     Where               Outcome',
    'ok   the metadata service  169.254.169.254:80  Network is unreachable',
    'BAD  a route               -                   eth0',
  ]);
});
