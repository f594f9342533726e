import path from 'node:path';
import { Readable } from 'node:stream';
import { extract, pack } from 'tar-stream';
import type { SandboxArchive, SandboxFile } from './sandbox.ts';

/** The unprivileged user of the sandbox image. */
export const agentUid = 10001;

const owner = { uid: agentUid, gid: agentUid, uname: '', gname: '' };

/**
 * A tar stream of files and archives for one volume, everything owned by the agent; paths are relative to `root`.
 * Whoever destroys it cancels the source that it is reading.
 */
export function tarFor(root: string, files: readonly SandboxFile[], archives: readonly SandboxArchive[]): Readable {
  const tar = pack();
  // Whoever reads the stream is given the error; one that nobody reads any more must not end the server.
  tar.on('error', () => {});
  fill(root, files, archives, tar).then(
    () => tar.finalize(),
    (error) => tar.destroy(error instanceof Error ? error : new Error(String(error))),
  );
  const stream = Readable.from(tar as AsyncIterable<Uint8Array>);
  stream.on('error', () => {});
  return stream;
}

type Pack = ReturnType<typeof pack>;
type Extract = ReturnType<typeof extract>;

async function fill(root: string, files: readonly SandboxFile[], archives: readonly SandboxArchive[], tar: Pack) {
  const made = new Set<string>();
  const makeDirectories = async (directory: string) => {
    if (directory === '.' || directory === '' || made.has(directory)) return;
    await makeDirectories(path.posix.dirname(directory));
    made.add(directory);
    await entry(tar, { ...owner, name: `${directory}/`, type: 'directory', mode: 0o755 });
  };
  for (const file of files) {
    const name = path.posix.relative(root, file.path);
    await makeDirectories(path.posix.dirname(name));
    await entry(tar, { ...owner, name, mode: file.mode ?? 0o644 }, Buffer.from(file.content as string));
  }
  for (const archive of archives) {
    const below = path.posix.relative(root, archive.path);
    await makeDirectories(below);
    await copyEntries(archive.open(), below, tar);
  }
}

/** Copies an archive's entries under `below`, as the agent's. */
async function copyEntries(source: ReadableStream<Uint8Array>, below: string, tar: Pack): Promise<void> {
  const entries = extract();
  const reading = Readable.fromWeb(source as never);
  reading.on('error', (error) => entries.destroy(error));
  reading.pipe(entries);
  const abandon = () => reading.destroy(new Error('Nobody reads the archive any more'));
  tar.once('close', abandon);
  try {
    await copyEach(entries, below, tar);
  } finally {
    tar.off('close', abandon);
    reading.destroy();
  }
}

async function copyEach(entries: Extract, below: string, tar: Pack): Promise<void> {
  for await (const item of entries) {
    const { name, mode, type, linkname, size, mtime } = item.header;
    const copied = tar.entry({
      ...owner,
      name: path.posix.join(below, name),
      mode: mode ?? 0o644,
      type: type ?? 'file',
      size: size ?? 0,
      // A hard link names an entry of the archive, a symbolic one whatever its text says.
      ...(linkname ? { linkname: type === 'link' ? path.posix.join(below, linkname) : linkname } : {}),
      ...(mtime ? { mtime } : {}),
    });
    // Breaks together with the tar, whose reader is told.
    copied.on('error', () => {});
    if (type !== 'file' && type !== undefined && type !== null) {
      item.resume();
      copied.end(undefined);
      continue;
    }
    for await (const piece of item) {
      if (!copied.write(piece)) await drained(copied);
    }
    copied.end(undefined);
  }
}

/** Resolves when there is room again, or nobody to make any. */
function drained(stream: ReturnType<Pack['entry']>): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      stream.off('drain', done);
      stream.off('close', done);
      resolve();
    };
    stream.on('drain', done);
    stream.on('close', done);
  });
}

function entry(tar: Pack, header: Parameters<Pack['entry']>[0], content?: Buffer): Promise<void> {
  return new Promise((resolve, reject) => {
    const done = (error?: Error | null) => (error ? reject(error) : resolve());
    if (content === undefined) tar.entry(header, done);
    else tar.entry({ ...header, size: content.length }, content, done);
  });
}
