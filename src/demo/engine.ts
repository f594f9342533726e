import { SandboxFailure } from '../sandbox/sandbox.ts';
import { type Machine, thisMachine } from './machine.ts';

/** How long a service, and then the daemon itself, may take until the engine answers. */
const serviceMs = 15_000;
const daemonMs = 60_000;

/** What the server and the building of its image need beside the engine: each program with its Debian packages. */
const tools: readonly { readonly program: string; readonly packages: readonly string[] }[] = [
  { program: 'git', packages: ['git'] },
  // For an image where no registry can be reached. The keyring is Debian's own, which Ubuntu does not have.
  { program: 'mmdebstrap', packages: ['mmdebstrap', 'debian-archive-keyring'] },
];

export interface EngineOptions {
  /** As DOCKER_HOST; null for the engine's usual socket. */
  readonly dockerHost: string | null;
  say(line: string): void;
  /** Tests pass a machine of their own. */
  readonly machine?: Machine;
}

/**
 * Sees to it that a Docker engine answers and that git is there. Where this process is root on Debian or Ubuntu, what
 * is missing is installed from their packages, and the engine is started; an engine that answers is left alone.
 * Elsewhere it throws a `SandboxFailure` whose message says in one line what is missing.
 */
export async function ensureEngine({ dockerHost, say, machine = thisMachine() }: EngineOptions): Promise<void> {
  const problem = await machine.engineProblem(dockerHost);
  const mayInstall = machine.isRoot && (await isDebian(machine));
  // An engine that DOCKER_HOST names is somebody's choice: another one here would not be what was asked for.
  const mayStart = mayInstall && dockerHost === null;
  if (problem !== null && !mayStart) throw new SandboxFailure('unavailable', adviceFor(problem, machine));
  if (mayInstall) await install(machine, missingPackages(machine, problem !== null), say);
  if (machine.which('git') === null) throw new SandboxFailure('unavailable', 'git is missing. Install it.');
  if (problem !== null) await startEngine(machine, say);
}

function missingPackages(machine: Machine, needsEngine: boolean): string[] {
  const engine = [
    { program: 'dockerd', packages: ['docker.io'] },
    { program: 'iptables', packages: ['iptables'] },
  ];
  return [...(needsEngine ? engine : []), ...tools]
    .filter(({ program }) => machine.which(program) === null)
    .flatMap(({ packages }) => packages);
}

async function install(machine: Machine, packages: readonly string[], say: (line: string) => void): Promise<void> {
  if (packages.length === 0) return;
  say(`installing the packages ${packages.join(', ')}`);
  const steps = [['update'], ['install', '--yes', '--no-install-recommends', ...packages]];
  for (const step of steps) {
    const command = ['env', 'DEBIAN_FRONTEND=noninteractive', 'apt-get', '-o', 'DPkg::Lock::Timeout=120', ...step];
    const { code, output } = await machine.run(command);
    if (code === 0) continue;
    const reason = output.trim().split('\n').at(-1) ?? '';
    throw new SandboxFailure(
      'unavailable',
      `\`apt-get ${step[0]}\` failed: ${reason} Install ${packages.join(', ')} by hand.`,
    );
  }
}

/** As the machine starts its services where that works; in a container it often does not, and the daemon itself does. */
async function startEngine(machine: Machine, say: (line: string) => void): Promise<void> {
  say('starting the Docker engine');
  const command = machine.hasSystemd ? ['systemctl', 'start', 'docker'] : ['service', 'docker', 'start'];
  if (machine.which(command[0] ?? '') !== null) {
    const { code } = await machine.run(command);
    // A service may be called started and end at once, so it is the engine that is asked.
    if (code === 0 && (await machine.engineAnswers(null, AbortSignal.timeout(serviceMs)))) return;
  }
  const { ended, logFile } = machine.startDaemon();
  if (await machine.engineAnswers(null, AbortSignal.any([ended, AbortSignal.timeout(daemonMs)]))) return;
  throw new SandboxFailure('unavailable', `The Docker engine does not start. ${logFile} tells why.`);
}

function adviceFor(problem: string, machine: Machine): string {
  if (machine.platform !== 'linux') return `${problem} If there is none yet, install Docker Desktop.`;
  if (machine.which('dockerd') !== null || machine.which('docker') !== null) return problem;
  return `${problem} If there is none yet, install it; as root on Debian or Ubuntu that is done for you.`;
}

async function isDebian(machine: Machine): Promise<boolean> {
  const release = await machine.osRelease();
  const names = [...release.matchAll(/^(?:ID|ID_LIKE)=["']?([^"'\n]*)/gm)].flatMap(([, value = '']) =>
    value.split(' '),
  );
  return names.includes('debian') || names.includes('ubuntu');
}
