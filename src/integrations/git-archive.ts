import { type FileHandle, open } from 'node:fs/promises';
import path from 'node:path';
import { pipeline } from 'node:stream/promises';
import { type Pack, pack } from 'tar-stream';
import type { Mirror } from './git-mirror.ts';
import { branchesOf, type Refs } from './git-refs.ts';

/** What a clone of the mirror looks like from inside. */
export interface CloneShape {
  readonly cloneUrl: string;
  readonly branch: string;
  readonly commit: string;
  readonly refs: Refs;
}

/** Large enough that the cost of a read does not show, small enough for many checkouts at once. */
const chunkBytes = 512 * 1024;

/**
 * A tar stream of the `.git` directory that `git clone --no-checkout` of the origin would make: the mirror's packs as
 * they are, and refs and configuration written for the clone. `prepare` answers the mirror when it may be read and
 * calls back once its files are open; from then on it may change, since open files stay what they were.
 */
export function gitDirectoryTar(
  clone: CloneShape,
  whileStill: (use: (mirror: Mirror) => Promise<void>) => Promise<void>,
): ReadableStream<Uint8Array> {
  const tar = pack();
  const chunks = tar[Symbol.asyncIterator]() as AsyncIterator<Uint8Array>;
  let filling: Promise<void> | undefined;
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        filling ??= fill(tar, clone, whileStill).catch((error) => tar.destroy(error as Error));
        const { done, value } = await chunks.next();
        if (done) controller.close();
        else controller.enqueue(value);
      },
      async cancel() {
        tar.destroy();
        await filling;
      },
    },
    { highWaterMark: 0 },
  );
}

async function fill(
  tar: Pack,
  clone: CloneShape,
  whileStill: (use: (mirror: Mirror) => Promise<void>) => Promise<void>,
): Promise<void> {
  const opened: { file: string; bytes: number; handle: FileHandle }[] = [];
  try {
    await whileStill(async (mirror) => {
      for (const [file, bytes] of mirror.files) {
        opened.push({ file, bytes, handle: await open(path.join(mirror.directory, file)) });
      }
    });
    for (const name of ['objects', 'objects/info', 'objects/pack', 'refs', 'refs/heads', 'refs/tags']) {
      tar.entry({ name: `${name}/`, type: 'directory', mode: 0o755 });
    }
    for (const [name, text] of Object.entries(textFiles(clone))) tar.entry({ name, mode: 0o644 }, text);
    for (const { file, bytes, handle } of opened) {
      const mode = file.startsWith('objects/') ? 0o444 : 0o644;
      const entry = tar.entry({ name: file, size: bytes, mode });
      await pipeline(handle.createReadStream({ highWaterMark: chunkBytes, autoClose: false }), entry);
    }
    tar.finalize();
  } finally {
    await Promise.all(opened.map(({ handle }) => handle.close().catch(() => {})));
  }
}

function textFiles({ cloneUrl, branch, commit, refs }: CloneShape): Record<string, string> {
  // A branch called HEAD would hide the one that says which branch is the origin's own.
  const remotes = branchesOf(refs).filter(([name]) => name !== 'HEAD');
  const tags = [...refs].filter(([name]) => name.startsWith('refs/tags/'));
  const lines = [
    `${commit} refs/heads/${branch}`,
    ...remotes.map(([name, tip]) => `${tip} refs/remotes/origin/${name}`),
    ...tags.map(([name, object]) => `${object} ${name}`),
  ];
  return {
    HEAD: `ref: refs/heads/${branch}\n`,
    config: configOf(cloneUrl, branch, commit.length === 64),
    'packed-refs': `${lines.join('\n')}\n`,
    'refs/remotes/origin/HEAD': `ref: refs/remotes/origin/${branch}\n`,
  };
}

function configOf(cloneUrl: string, branch: string, isSha256: boolean): string {
  const lines = [
    '[core]',
    `\trepositoryformatversion = ${isSha256 ? 1 : 0}`,
    '\tfilemode = true',
    '\tbare = false',
    '\tlogallrefupdates = true',
    ...(isSha256 ? ['[extensions]', '\tobjectformat = sha256'] : []),
    '[remote "origin"]',
    `\turl = ${quoted(cloneUrl)}`,
    '\tfetch = +refs/heads/*:refs/remotes/origin/*',
    `[branch ${quoted(branch)}]`,
    '\tremote = origin',
    `\tmerge = ${quoted(`refs/heads/${branch}`)}`,
  ];
  return `${lines.join('\n')}\n`;
}

const quoted = (text: string): string => `"${text.replace(/["\\]/g, '\\$&')}"`;
