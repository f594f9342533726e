import { describe, expect, test } from 'bun:test';
import { Readable } from 'node:stream';
import { extract, type Header, type Pack, pack } from 'tar-stream';
import { tarFor } from '../../src/sandbox/docker-files.ts';

type Entry = Header & { readonly text: string };

async function entriesOf(tar: NodeJS.ReadableStream): Promise<Entry[]> {
  const entries: Entry[] = [];
  const reading = tar.pipe(extract());
  for await (const item of reading) {
    const parts: Uint8Array[] = [];
    for await (const part of item as AsyncIterable<Uint8Array>) parts.push(part);
    entries.push({ ...item.header, text: Buffer.concat(parts).toString() });
  }
  return entries;
}

type EntrySource = Parameters<Pack['entry']>[0] & { readonly text?: string };

/** An archive as a source gives it: owned by whoever made it. */
function archive(path: string, entries: readonly EntrySource[]) {
  const tar = pack();
  for (const { text = '', ...header } of entries) tar.entry({ uid: 0, gid: 0, uname: 'root', ...header }, text);
  tar.finalize();
  return { path, open: () => Readable.toWeb(Readable.from(tar as AsyncIterable<Uint8Array>)) as never };
}

/** The header of a file of a gibibyte, whose content is still to come. */
async function beginning(): Promise<Uint8Array> {
  const tar = pack();
  tar.entry({ name: 'big', size: 2 ** 30 });
  const { value } = await (tar as AsyncIterable<Uint8Array>)[Symbol.asyncIterator]().next();
  return new Uint8Array(value);
}

describe('what is put into a volume', () => {
  test('is owned by the agent, below directories that are made for it once', async () => {
    const files = [
      { path: '/state/turn/prompt.txt', content: 'Mend €' },
      { path: '/state/turn/run', content: new Uint8Array([0, 255]), mode: 0o755 },
      { path: '/state/top', content: '' },
    ];
    const entries = await entriesOf(tarFor('/state', files, []));
    expect(entries.map(({ name, type, mode, text }) => [name, type, mode, text.length])).toEqual([
      ['turn/', 'directory', 0o755, 0],
      ['turn/prompt.txt', 'file', 0o644, 6],
      ['turn/run', 'file', 0o755, 2],
      ['top', 'file', 0o644, 0],
    ]);
    expect(entries.every(({ uid, gid, uname }) => uid === 10001 && gid === 10001 && uname === '')).toBe(true);
  });

  test('of an archive lies below its place, whoever owned it, links included', async () => {
    const name = `${'long/'.repeat(40)}name.txt`;
    const source = archive('/workspace/app/.git', [
      { name: 'refs/', type: 'directory', mode: 0o700 },
      { name: 'HEAD', text: 'ref: refs/heads/main\n', mode: 0o600 },
      { name: 'same', type: 'link', linkname: 'HEAD' },
      { name: 'shown', type: 'symlink', linkname: '../outside' },
      { name, text: 'x'.repeat(200_000) },
    ]);
    const entries = await entriesOf(tarFor('/workspace', [], [source]));
    expect(entries.map((entry) => [entry.name, entry.type, entry.mode, entry.linkname ?? ''])).toEqual([
      ['app/', 'directory', 0o755, ''],
      ['app/.git/', 'directory', 0o755, ''],
      ['app/.git/refs/', 'directory', 0o700, ''],
      ['app/.git/HEAD', 'file', 0o600, ''],
      ['app/.git/same', 'link', 0o644, 'app/.git/HEAD'],
      ['app/.git/shown', 'symlink', 0o644, '../outside'],
      [`app/.git/${name}`, 'file', 0o644, ''],
    ]);
    expect(entries.at(-1)?.text.length).toBe(200_000);
    expect(entries.every(({ uid, gid, uname }) => uid === 10001 && gid === 10001 && uname === '')).toBe(true);
  });

  test('fails the stream where a source fails', async () => {
    let given = false;
    const broken = new ReadableStream<Uint8Array>({
      async pull(controller) {
        if (given) return controller.error(new Error('The source broke'));
        given = true;
        controller.enqueue(await beginning());
      },
    });
    const tar = tarFor('/workspace', [], [{ path: '/workspace/app', open: () => broken }]);
    await expect(Array.fromAsync(tar)).rejects.toThrow('The source broke');
  });

  test('is read no further from its source once nobody wants it, whether the source waits or gives', async () => {
    for (const gives of [true, false]) {
      const cancelled = Promise.withResolvers<void>();
      const source = new ReadableStream<Uint8Array>({
        async start(controller) {
          controller.enqueue(await beginning());
        },
        async pull(controller) {
          // As a source does that reads from outside: the loop of events goes on in between.
          await new Promise((resolve) => (gives ? setImmediate(resolve) : undefined));
          controller.enqueue(new Uint8Array(65_536));
        },
        cancel: () => cancelled.resolve(),
      });
      const tar = tarFor('/workspace', [], [{ path: '/workspace/app', open: () => source }]);
      // The directory, and the beginning of the file.
      const reading = tar[Symbol.asyncIterator]();
      await reading.next();
      await reading.next();
      tar.destroy();
      await cancelled.promise;
    }
  });
});
