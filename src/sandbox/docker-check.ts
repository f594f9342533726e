import path from 'node:path';
import type { Sandbox } from './sandbox.ts';

/** What a sandbox was seen to be from inside it. */
export interface Inside {
  /** Names of the network interfaces. */
  readonly interfaces: readonly string[];
  readonly uid: number;
  /** Whether a connection to the proxy's port came out at the server's own socket. */
  readonly reachesDoor: boolean;
  /** Whether one to an address of the internet came about; it never should. */
  readonly reachesInternet: boolean;
}

const runId = 'check';
const answer = 'the door is open';
/** One that is always up, so that it is the sandbox and not the address that is at fault. */
const outside = 'https://1.1.1.1/';

const script = `
for place in /sys/class/net/*; do echo "interface \${place##*/}"; done
echo "uid $(id -u)"
echo "door $(curl --silent --max-time 10 --noproxy '*' http://127.0.0.1:3128/)"
curl --silent --max-time 5 --noproxy '*' --insecure --output /dev/null ${outside} && echo "internet"
exit 0
`;

/**
 * Starts a sandbox as for an agent, with its door in `socketDirectory`, looks at its network from inside, and removes
 * it. Throws `SandboxFailure`.
 */
export async function lookInside(
  sandbox: Sandbox,
  socketDirectory: string,
  limits: Parameters<Sandbox['start']>[0]['limits'],
): Promise<Inside> {
  const doors = ['proxy.sock', 'gateway.sock'].map((name) =>
    Bun.serve({ unix: path.join(socketDirectory, name), fetch: () => new Response(answer) }),
  );
  try {
    const process = await sandbox.start({
      runId,
      turn: 1,
      command: ['/bin/sh', '-c', script],
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
    const after = (word: string) =>
      lines.filter((line) => line.startsWith(`${word} `)).map((line) => line.slice(word.length + 1));
    return {
      interfaces: after('interface'),
      uid: Number(after('uid')[0] ?? Number.NaN),
      reachesDoor: after('door')[0] === answer,
      reachesInternet: lines.includes('internet'),
    };
  } finally {
    await sandbox.discard(runId).catch(() => {});
    await Promise.all(doors.map((door) => door.stop(true)));
  }
}
