import { randomBytes } from 'node:crypto';
import { networkInterfaces } from 'node:os';
import path from 'node:path';
import { agentUid } from './docker-files.ts';
import type { Attempt, LookInside, Sandbox } from './sandbox.ts';

/** The run that a look inside goes by. No run of the database has such an id. */
export const checkRunId = 'check';

export interface Surroundings {
  /** Addresses of the engine's own networks. */
  readonly gateways: readonly string[];
}

/** One thing that is tried: the words that the script below takes, and what a sandbox as it should be says to it. */
interface Trial extends Pick<Attempt, 'kind' | 'what' | 'target'> {
  readonly words: readonly [verb: 'list' | 'resolve' | 'connect' | 'ask', object: string];
  /** What has to come of it; 'failed' and why where it must not be possible. */
  readonly wanted: string;
}

/**
 * Tries everything at the same time and prints one line each: its number, `done` or `failed`, and what was seen. That
 * the means work is itself tried: `resolve` with a name that needs no server, `connect` with the door.
 */
const script = `
set -f
tell() { printf '%s %s %s\\n' "$1" "$2" "$(echo $3)"; }
list() {
  case $1 in
    interfaces) ls /sys/class/net ;;
    routes) tail -n +2 /proc/net/route; grep -v ' lo$' /proc/net/ipv6_route 2> /dev/null ;;
    user) id -u ;;
  esac
  return 0
}
resolve() { timeout 5 getent ahosts "$1" || { echo 'no answer'; return 1; }; }
connect() {
  said=$(timeout 4 socat -u /dev/null "$1,connect-timeout=3" 2>&1) && return 0
  [ -n "$said" ] && echo "\${said##*: }" || echo 'no answer'
  return 1
}
ask() { curl --silent --max-time 10 --noproxy '*' "$1" || { echo 'no answer'; return 1; }; }
number=0
while [ $# -gt 0 ]; do
  number=$((number + 1))
  { said=$("$1" "$2" 2>&1) && tell "$number" done "$said" || tell "$number" failed "$said"; } &
  shift 2
done
wait
`;

/**
 * Starts a sandbox as for an agent, tries from inside what must not be possible, and the door, and removes it again.
 * For the time of it this process listens on every address of its machine. Throws `SandboxFailure`.
 */
export async function lookInside(
  sandbox: Pick<Sandbox, 'start' | 'discard'>,
  { socketDirectory, limits }: LookInside,
  surroundings: Surroundings,
): Promise<Attempt[]> {
  const nonce = randomBytes(8).toString('hex');
  const doors = ['proxy', 'gateway'].map((name) =>
    Bun.serve({ unix: path.join(socketDirectory, `${name}.sock`), fetch: () => new Response(`${name} ${nonce}`) }),
  );
  const listeners = ['0.0.0.0', '::'].map(listen);
  try {
    const trials = trialsOf(surroundings, listeners, nonce);
    const process = await sandbox.start({
      runId: checkRunId,
      turn: 1,
      command: ['/bin/sh', '-c', script, 'check', ...trials.flatMap(({ words }) => words)],
      workingDirectory: '/workspace',
      environment: {},
      files: [],
      archives: [],
      socketDirectory,
      caCertificate: '',
      limits,
    });
    const lines: string[] = [];
    for await (const { text } of process.lines(0)) lines.push(text);
    await process.exit;
    return trials.map((trial, index) => judge(trial, lines, index + 1));
  } finally {
    await sandbox.discard(checkRunId).catch(() => {});
    for (const listener of listeners) listener?.stop(true);
    await Promise.all(doors.map((door) => door.stop(true)));
  }
}

/** Something that takes connections on every address of its family; undefined on a machine without the family. */
function listen(hostname: string): Bun.TCPSocketListener | undefined {
  const socket = { open: (taken: Bun.Socket) => void taken.end(), data() {} };
  try {
    return Bun.listen({ hostname, port: 0, socket });
  } catch {
    return undefined;
  }
}

function trialsOf(
  { gateways }: Surroundings,
  [port4, port6]: readonly (Bun.TCPSocketListener | undefined)[],
  nonce: string,
): Trial[] {
  const portFor = (address: string) => (address.includes(':') ? port6 : port4)?.port;
  const reach = (what: string, address: string, port: number | undefined): Trial[] => {
    if (port === undefined) return [];
    const target = address.includes(':') ? `[${address}]:${port}` : `${address}:${port}`;
    return [{ kind: 'network', what, target, words: ['connect', `TCP:${target}`], wanted: 'failed' }];
  };
  const own = Object.values(networkInterfaces())
    .flatMap((all) => all ?? [])
    // A link-local address means nothing without the interface that it belongs to.
    .filter(({ address }) => !address.startsWith('fe80:'))
    .map(({ address }) => address);
  const resolve = (name: string, wanted: string): Trial => ({
    kind: wanted === 'failed' ? 'network' : 'means',
    what: wanted === 'failed' ? 'a name server' : 'its own name',
    target: name,
    words: ['resolve', name],
    wanted,
  });
  const door = (name: string, port: number): Trial[] => [
    {
      kind: 'means',
      what: `the ${name}'s port`,
      target: null,
      words: ['connect', `TCP:127.0.0.1:${port}`],
      wanted: 'done',
    },
    {
      kind: 'door',
      what: `the ${name}`,
      target: null,
      words: ['ask', `http://127.0.0.1:${port}/`],
      wanted: `done ${name} ${nonce}`,
    },
  ];
  return [
    { kind: 'network', what: 'a network interface', target: null, words: ['list', 'interfaces'], wanted: 'done lo' },
    { kind: 'network', what: 'a route', target: null, words: ['list', 'routes'], wanted: 'done' },
    { kind: 'user', what: 'another user', target: null, words: ['list', 'user'], wanted: `done ${agentUid}` },
    resolve('localhost', 'done'),
    ...['example.com', 'host.docker.internal'].map((name) => resolve(name, 'failed')),
    ...[...new Set(gateways)].flatMap((address) => reach("the engine's gateway", address, portFor(address))),
    ...[...new Set(own)].flatMap((address) => reach('this machine', address, portFor(address))),
    ...reach('the metadata service', '169.254.169.254', 80),
    ...reach('the internet', '1.1.1.1', 443),
    ...reach('the internet', '2606:4700:4700::1111', 443),
    ...door('proxy', 3128),
    ...door('gateway', 3129),
  ];
}

/** What became of a trial. One that says nothing counts as gone wrong, whatever it was to show. */
function judge(
  { kind, what, target, words: [verb], wanted }: Trial,
  lines: readonly string[],
  number: number,
): Attempt {
  const said = lines
    .find((line) => line.startsWith(`${number} `))
    ?.slice(`${number} `.length)
    .trim();
  const [state = '', ...rest] = (said ?? '').split(' ');
  const seen = rest.join(' ').trim();
  // A list has to be as it is wanted to the letter; an attempt has to fail, for whatever reason, or to succeed.
  const ok = verb === 'list' || verb === 'ask' ? said === wanted : state === wanted;
  if (said === undefined) return { kind, what, target, outcome: 'not tried', ok: false };
  if (verb === 'connect') return { kind, what, target, outcome: state === 'done' ? 'reached' : seen, ok };
  if (verb === 'ask') return { kind, what, target, outcome: ok ? 'leads to the server' : 'closed', ok };
  return { kind, what, target, outcome: seen === '' ? 'none' : seen.slice(0, 80), ok };
}
