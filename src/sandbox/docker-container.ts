import path from 'node:path';
import type Docker from 'dockerode';
import { agentUid } from './docker-files.ts';
import type { SandboxSpec } from './sandbox.ts';

/** What an installation's containers and volumes are found by. */
export const labelOf = {
  installation: 'slipway.installation',
  run: 'slipway.run',
  turn: 'slipway.turn',
  role: 'slipway.role',
} as const;

export type Role = 'agent' | 'door' | 'inspect' | 'check';

export const volumeName = (installation: string, runId: string, part: 'workspace' | 'state'): string =>
  `slipway-${installation}-${runId}-${part}`;

export const containerName = (installation: string, runId: string, turn: number, role: Role): string =>
  `slipway-${installation}-${runId}-${turn}-${role}`;

const mebibyte = 1024 * 1024;
/** The engine would write the addresses of its own machine's name servers into a container: they are nobody's business. */
const noNameServer = ['127.0.0.1'];
/**
 * The agent's output is kept by the engine, whatever its usual driver is, so that it can be read from the beginning by
 * another process of the server. This driver keeps bytes as they are; the size is above what an agent may print.
 */
const keptLog = { Type: 'local', Config: { 'max-size': '1024m', 'max-file': '2', compress: 'false' } };

const agentUser = `${agentUid}:${agentUid}`;

/** What holds for every container: no privilege, no way to gain one, nothing to write on but what is mounted. */
const confined = {
  ReadonlyRootfs: true,
  CapDrop: ['ALL'],
  SecurityOpt: ['no-new-privileges'],
  RestartPolicy: { Name: 'no' },
  LogConfig: { Type: 'none', Config: {} },
} satisfies Docker.HostConfig;

/** Writable places that end with the container; `exec` because build tools run what they write there. */
const temporary = {
  '/tmp': `rw,exec,nosuid,nodev,size=${1024 * mebibyte},mode=1777`,
  '/home/agent': `rw,exec,nosuid,nodev,size=${512 * mebibyte},mode=0755,uid=${agentUid},gid=${agentUid}`,
  '/run/slipway': `rw,noexec,nosuid,nodev,size=${4 * mebibyte},mode=0755,uid=${agentUid},gid=${agentUid}`,
};

/** A named volume that holds the sockets of all doors, and where the server has it mounted. */
export interface DoorVolume {
  readonly name: string;
  readonly path: string;
}

export interface Place {
  readonly installation: string;
  readonly image: string;
  readonly doorVolume: DoorVolume | null;
}

const labels = ({ installation }: Place, runId: string, turn: number, role: Role) => ({
  [labelOf.installation]: installation,
  [labelOf.run]: runId,
  [labelOf.turn]: String(turn),
  [labelOf.role]: role,
});

const volumes = ({ installation }: Place, runId: string): string[] => [
  `${volumeName(installation, runId, 'workspace')}:/workspace`,
  `${volumeName(installation, runId, 'state')}:/state`,
];

/**
 * The door owns the network namespace, which has a loopback interface and nothing else, and leads two ports of it to
 * the run's sockets. A connection that finds no listener waits for a minute: the server may be restarting. It runs as
 * the server's own user, whom the directory of the sockets belongs to, without any capability.
 *
 * On a volume the door sees the sockets of other runs beside its own, for engines before 26 mount a volume whole. It
 * runs nothing but this command, and the agent, who shares its network alone, sees none of it.
 */
export function doorContainer(place: Place, spec: SandboxSpec): Docker.ContainerCreateOptions {
  const sockets = socketsOf(place, spec.socketDirectory);
  const lead = (port: number, socket: string) =>
    `socat -b 65536 -t 600 TCP4-LISTEN:${port},bind=127.0.0.1,fork,reuseaddr,backlog=512 UNIX-CONNECT:${sockets.directory}/${socket},retry=120,interval=0.5`;
  return {
    name: containerName(place.installation, spec.runId, spec.turn, 'door'),
    Image: place.image,
    Entrypoint: ['tini', '-g', '--', '/bin/sh', '-c'],
    Cmd: [`${lead(3129, 'gateway.sock')} & exec ${lead(3128, 'proxy.sock')}`],
    User: `${process.getuid?.() ?? 0}:${process.getgid?.() ?? 0}`,
    WorkingDir: '/',
    Labels: labels(place, spec.runId, spec.turn, 'door'),
    HostConfig: {
      ...confined,
      NetworkMode: 'none',
      Dns: noNameServer,
      Binds: [`${sockets.source}:/door:ro`],
      Memory: 256 * mebibyte,
      MemorySwap: 256 * mebibyte,
      PidsLimit: 1200,
    },
  };
}

/** What the door mounts, and where in it the run's own sockets are. */
function socketsOf({ doorVolume }: Place, socketDirectory: string): { source: string; directory: string } {
  if (doorVolume === null) return { source: socketDirectory, directory: '/door' };
  return {
    source: doorVolume.name,
    directory: path.posix.join('/door', path.relative(doorVolume.path, socketDirectory)),
  };
}

/** The agent, in the door's network namespace. */
export function agentContainer(place: Place, spec: SandboxSpec): Docker.ContainerCreateOptions {
  return {
    name: containerName(place.installation, spec.runId, spec.turn, 'agent'),
    Image: place.image,
    Entrypoint: ['tini', '-g', '--', '/opt/slipway/enter'],
    Cmd: [...spec.command],
    User: agentUser,
    WorkingDir: '/',
    Env: Object.entries({ ...doorEnvironment, ...spec.environment, SLIPWAY_WORKDIR: spec.workingDirectory }).map(
      ([name, value]) => `${name}=${value}`,
    ),
    Labels: labels(place, spec.runId, spec.turn, 'agent'),
    HostConfig: {
      ...confined,
      NetworkMode: `container:${containerName(place.installation, spec.runId, spec.turn, 'door')}`,
      Binds: volumes(place, spec.runId),
      Tmpfs: temporary,
      Memory: spec.limits.memoryBytes,
      MemorySwap: spec.limits.memoryBytes,
      NanoCpus: Math.round(spec.limits.cpus * 1e9),
      PidsLimit: spec.limits.processes,
      Ulimits: [{ Name: 'core', Soft: 0, Hard: 0 }],
      LogConfig: keptLog,
    },
  };
}

/** A short command on the run's volumes, with no door at all. */
export function inspectContainer(
  place: Place,
  runId: string,
  task: { command: readonly string[]; workingDirectory: string; environment?: Readonly<Record<string, string>> },
): Docker.ContainerCreateOptions {
  return {
    Image: place.image,
    Entrypoint: ['tini', '-g', '--'],
    Cmd: [...task.command],
    User: agentUser,
    WorkingDir: task.workingDirectory,
    Env: Object.entries({ HOME: '/home/agent', ...task.environment }).map(([name, value]) => `${name}=${value}`),
    Labels: labels(place, runId, 0, 'inspect'),
    HostConfig: {
      ...confined,
      NetworkMode: 'none',
      Dns: noNameServer,
      Binds: volumes(place, runId),
      Tmpfs: temporary,
      Memory: 1024 * mebibyte,
      MemorySwap: 1024 * mebibyte,
      PidsLimit: 128,
    },
  };
}

const proxy = 'http://127.0.0.1:3128';
const bundle = '/run/slipway/ca-bundle.crt';
const own = '/state/turn/slipway-ca.crt';
const direct = 'localhost,127.0.0.1,::1';

/** Where `/opt/slipway/enter` finds the installation's certificate, to make the bundle of it and the system's. */
export const caFile = own;

/** How the usual clients are told of the proxy and of the authority that its certificates come from. */
const doorEnvironment: Readonly<Record<string, string>> = {
  HOME: '/home/agent',
  HTTPS_PROXY: proxy,
  HTTP_PROXY: proxy,
  https_proxy: proxy,
  http_proxy: proxy,
  NO_PROXY: direct,
  no_proxy: direct,
  NODE_USE_ENV_PROXY: '1',
  SSL_CERT_FILE: bundle,
  CURL_CA_BUNDLE: bundle,
  REQUESTS_CA_BUNDLE: bundle,
  PIP_CERT: bundle,
  GIT_SSL_CAINFO: bundle,
  AWS_CA_BUNDLE: bundle,
  DENO_CERT: bundle,
  CODEX_CA_CERTIFICATE: bundle,
  NODE_EXTRA_CA_CERTS: own,
};
