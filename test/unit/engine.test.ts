import { describe, expect, test } from 'bun:test';
import { ensureEngine } from '../../src/demo/engine.ts';
import type { Machine } from '../../src/demo/machine.ts';
import { SandboxFailure } from '../../src/sandbox/sandbox.ts';

const unreachable = 'The Docker engine cannot be reached.';
const debian = 'PRETTY_NAME="Debian GNU/Linux 12"\nNAME="Debian GNU/Linux"\nID=debian\n';
const ubuntu = 'NAME="Ubuntu"\nID=ubuntu\nID_LIKE=debian\n';
const fedora = 'NAME="Fedora Linux"\nID=fedora\n';
const mint = 'NAME="Linux Mint"\nID=linuxmint\nID_LIKE="ubuntu debian"\n';

interface Given {
  readonly platform?: string;
  readonly isRoot?: boolean;
  readonly release?: string;
  readonly programs?: readonly string[];
  readonly hasSystemd?: boolean;
  /** The engine answers from the beginning. */
  readonly answers?: boolean;
  /** What makes the engine answer; neither where it never does. */
  readonly startsBy?: 'service' | 'daemon' | 'nothing';
  /** A word of a command that fails. */
  readonly failing?: string;
}

/** A machine on which nothing happens but what the test gave it; it keeps what was done to it. */
function machineWith(given: Given) {
  const programs = new Set(given.programs ?? ['git', 'mmdebstrap', 'iptables', 'dockerd', 'service']);
  const done: string[] = [];
  let answers = given.answers ?? false;
  const machine: Machine = {
    platform: given.platform ?? 'linux',
    isRoot: given.isRoot ?? true,
    hasSystemd: given.hasSystemd ?? false,
    osRelease: async () => given.release ?? debian,
    which: (program) => (programs.has(program) ? `/usr/bin/${program}` : null),
    async run(command) {
      const line = command.join(' ');
      done.push(line);
      if (given.failing !== undefined && line.includes(given.failing)) return { code: 100, output: 'a\nE: No way.\n' };
      if (line.includes(' install ')) for (const name of command) programs.add(name === 'docker.io' ? 'dockerd' : name);
      if (/^(service|systemctl) /.test(line) && given.startsBy === 'service') answers = true;
      return { code: 0, output: '' };
    },
    engineProblem: async () => (answers ? null : unreachable),
    engineAnswers: async () => answers,
    startDaemon() {
      done.push('dockerd');
      if (given.startsBy === 'daemon') answers = true;
      return { logFile: '/var/log/daemon.log', ended: new AbortController().signal };
    },
  };
  return { machine, done };
}

async function ensured(given: Given, dockerHost: string | null = null) {
  const { machine, done } = machineWith(given);
  const said: string[] = [];
  const failure = await ensureEngine({ dockerHost, say: (line) => said.push(line), machine }).then(
    () => null,
    (error) => error,
  );
  if (failure !== null) expect(failure).toBeInstanceOf(SandboxFailure);
  return { done, said, message: failure?.message as string | undefined };
}

describe('an engine that answers', () => {
  test('is left alone, and nothing is installed where nothing is missing', async () => {
    expect(await ensured({ answers: true })).toEqual({ done: [], said: [], message: undefined });
  });

  test('does not have its tools looked for by somebody who could not install them', async () => {
    expect(await ensured({ answers: true, isRoot: false, programs: ['git'] })).toMatchObject({ done: [] });
  });

  test('has the tools beside it installed as root on Debian, and no engine', async () => {
    const { done, message } = await ensured({ answers: true, programs: ['git'] });
    expect(message).toBeUndefined();
    expect(done).toHaveLength(2);
    expect(done[1]).toEndWith('install --yes --no-install-recommends mmdebstrap debian-archive-keyring');
  });

  test('is of no use without git, which is said in one line', async () => {
    const { done, message } = await ensured({ answers: true, isRoot: false, programs: [] });
    expect(done).toEqual([]);
    expect(message).toBe('git is missing. Install it.');
  });
});

describe('where no engine answers, as root', () => {
  test.each([
    ['Debian', debian],
    ['Ubuntu', ubuntu],
    ['what is made of them', mint],
  ])('on %s it is installed and started, all in one go', async (_, release) => {
    const { done, said, message } = await ensured({ release, programs: ['service'], startsBy: 'service' });
    expect(message).toBeUndefined();
    expect(done).toEqual([
      'env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 update',
      'env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 install --yes --no-install-recommends docker.io iptables git mmdebstrap debian-archive-keyring',
      'service docker start',
    ]);
    expect(said).toHaveLength(2);
  });

  test('one that is installed is only started', async () => {
    expect((await ensured({ startsBy: 'service' })).done).toEqual(['service docker start']);
  });

  test('systemd starts it where systemd runs', async () => {
    const { done } = await ensured({
      hasSystemd: true,
      programs: ['systemctl', 'git', 'mmdebstrap', 'iptables', 'dockerd'],
      startsBy: 'service',
    });
    expect(done).toEqual(['systemctl start docker']);
  });

  test('the daemon itself is started where the service is refused', async () => {
    const { done, message } = await ensured({ startsBy: 'daemon', failing: 'service docker' });
    expect(done).toEqual(['service docker start', 'dockerd']);
    expect(message).toBeUndefined();
  });

  test('the daemon itself is started where the service says that it started and did not', async () => {
    expect((await ensured({ startsBy: 'daemon' })).done).toEqual(['service docker start', 'dockerd']);
  });

  test('one that does not start is given up with the place of its output', async () => {
    const { message } = await ensured({ startsBy: 'nothing' });
    expect(message).toBe('The Docker engine does not start. /var/log/daemon.log tells why.');
  });

  test.each(['update', 'install'])(
    'a failing apt-get %s is told with its last line, and nothing is started',
    async (step) => {
      const { done, message } = await ensured({ programs: ['service', 'git', 'mmdebstrap'], failing: ` ${step}` });
      expect(message).toBe(`\`apt-get ${step}\` failed: E: No way. Install docker.io, iptables by hand.`);
      expect(done.some((line) => line.startsWith('service'))).toBe(false);
    },
  );

  test('an engine that DOCKER_HOST names is not replaced by one here', async () => {
    const { done, message } = await ensured({}, 'tcp://10.0.0.1:2375');
    expect(done).toEqual([]);
    expect(message).toBe(unreachable);
  });
});

describe('where no engine answers and none may be installed, one line says what is missing', () => {
  test.each([
    ['not root', { isRoot: false, programs: ['git'] }, 'install it; as root on Debian or Ubuntu'],
    ['not root, engine installed but not running', { isRoot: false }, unreachable],
    ['root on another system', { release: fedora, programs: [] }, 'install it; as root on Debian or Ubuntu'],
    ['macOS', { platform: 'darwin', isRoot: false, release: '' }, 'install Docker Desktop'],
  ] as const)('%s', async (_, given, expected) => {
    const { done, said, message } = await ensured(given);
    expect(message).toContain(expected);
    expect(message).not.toContain('\n');
    expect({ done, said }).toEqual({ done: [], said: [] });
  });
});
