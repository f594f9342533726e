import { chmod, mkdir, rm, symlink, writeFile } from 'node:fs/promises';
import { dirname, join, resolve, sep } from 'node:path';
import { Readable } from 'node:stream';
import { extract, type Header } from 'tar-stream';
import {
  type InspectResult,
  type InspectTask,
  type SandboxArchive,
  SandboxFailure,
  type SandboxFile,
} from './sandbox.ts';

const programPath = '/usr/local/bin:/usr/bin:/bin';

/** The two volumes of a run as folders of the host. */
export interface DummyVolumes {
  make(): Promise<void>;
  remove(): Promise<void>;
  /** The host's path of one inside; anything outside of the two volumes is refused. */
  hostPath(path: string): string;
  put(file: SandboxFile): Promise<void>;
  unpack(archive: SandboxArchive): Promise<void>;
  /** Runs the command on the host, with every path of the sandbox in it replaced by the host's. */
  run(task: Omit<InspectTask, 'runId'>): Promise<InspectResult>;
}

export function dummyVolumes(directory: string): DummyVolumes {
  const hostPath = (path: string): string => {
    const found = resolve(directory, `.${resolve('/', path)}`);
    const isInside = ['workspace', 'state'].some((volume) => {
      const root = join(directory, volume);
      return found === root || found.startsWith(root + sep);
    });
    if (!isInside) throw new SandboxFailure('failed', `The path ${path} is in none of the sandbox's volumes`);
    return found;
  };

  /** A path counts only where one begins, so that the host's own paths are left as they are. */
  const mapped = (text: string) =>
    text.replace(/(?<![\w./-])\/(workspace|state)(?![\w.-])/g, (_, volume: string) => join(directory, volume));

  const run: DummyVolumes['run'] = async (task) => {
    const environment = Object.entries(task.environment ?? {}).map(([name, value]) => [name, mapped(value)]);
    // A file and not a pipe: under load, Bun 1.4.5 now and then never tells the end of a child's pipe.
    const printed = join(directory, `printed-${crypto.randomUUID()}`);
    const child = spawn(task.command.map(mapped), Bun.file(printed), {
      cwd: hostPath(task.workingDirectory),
      // The home is a folder of the run's own, so that no settings of the developer's git take part.
      env: { PATH: programPath, HOME: directory, GIT_CONFIG_NOSYSTEM: '1', ...Object.fromEntries(environment) },
    });
    let isLate = false;
    const timer = setTimeout(() => {
      isLate = true;
      killGroup(child.pid);
    }, task.timeoutMs);
    const code = await child.exited;
    clearTimeout(timer);
    const file = Bun.file(printed);
    const output = await file.slice(0, task.maxOutputBytes).bytes();
    const cut = file.size > task.maxOutputBytes;
    await file.delete();
    if (isLate) throw new SandboxFailure('failed', 'The command on the volumes took too long and was ended');
    return { code, output, cut };
  };

  return {
    hostPath,
    run,
    async make() {
      for (const volume of ['workspace', 'state']) await mkdir(join(directory, volume), { recursive: true });
    },
    remove: () => rm(directory, { recursive: true, force: true }),
    async put(file) {
      const path = hostPath(file.path);
      await mkdir(dirname(path), { recursive: true });
      await writeFile(path, file.content);
      await chmod(path, file.mode ?? 0o644);
    },
    async unpack(archive) {
      const root = hostPath(archive.path);
      await mkdir(root, { recursive: true });
      const entries = extract();
      const source = Readable.from(archive.open());
      source.once('error', (error) => entries.destroy(error));
      source.pipe(entries);
      for await (const entry of entries) await unpackEntry(root, entry.header, entry);
      if (archive.path.endsWith('/.git')) await makeWorkTree(archive.path, run);
    },
  };
}

function spawn(command: string[], stdout: Bun.BunFile, place: { cwd: string; env: Record<string, string> }) {
  try {
    return Bun.spawn(command, { ...place, detached: true, stdin: 'ignore', stdout, stderr: 'ignore' });
  } catch (cause) {
    throw new SandboxFailure('failed', 'The command on the volumes could not be started', cause);
  }
}

/** The command leads a group of its own: what it has started would hold its output open otherwise. */
function killGroup(leader: number): void {
  try {
    process.kill(-leader, 'SIGKILL');
  } catch {
    // All of it has ended by itself in this very moment.
  }
}

type EntryContent = AsyncIterable<unknown> & { resume(): unknown };

/** The archive goes on to its next entry once this one's content was read or let go. */
async function unpackEntry(root: string, header: Header, content: EntryContent): Promise<void> {
  const { name, type, mode, linkname } = header;
  const path = resolve(root, name);
  if (path !== root && !path.startsWith(root + sep))
    throw new SandboxFailure('failed', 'The archive leaves its folder');
  if (type === 'directory') {
    await mkdir(path, { recursive: true });
    content.resume();
    return;
  }
  await mkdir(dirname(path), { recursive: true });
  if (type === 'symlink') {
    await symlink(linkname ?? '', path);
    content.resume();
    return;
  }
  if (type !== 'file' && type !== 'contiguous-file') {
    throw new SandboxFailure('failed', `The archive holds an entry of the kind ${type}, which the dummy does not know`);
  }
  const pieces: Uint8Array[] = [];
  for await (const piece of content as AsyncIterable<Uint8Array>) pieces.push(piece);
  await writeFile(path, Buffer.concat(pieces));
  await chmod(path, (mode ?? 0o644) | 0o600);
}

/** The runner's command makes the work tree with git; the dummy plays a script instead, so it does this part itself. */
async function makeWorkTree(gitDirectory: string, run: DummyVolumes['run']): Promise<void> {
  const workTree = dirname(gitDirectory);
  const { code } = await run({
    command: ['git', `--git-dir=${gitDirectory}`, `--work-tree=${workTree}`, 'reset', '--hard', '--quiet'],
    workingDirectory: workTree,
    maxOutputBytes: 1024,
    timeoutMs: 60_000,
  });
  if (code !== 0) throw new SandboxFailure('failed', 'git could not make the work tree of an unpacked repository');
}
