import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import { createHash } from 'node:crypto';
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { extract, pack } from 'tar-stream';
import { imageReference, type PinnedPackage, pinnedPackages } from '../../src/sandbox/image.ts';
import { copyPackage, fetchPackages, placeOf } from '../../src/sandbox/image-packages.ts';

let directory: string;
beforeAll(async () => {
  directory = await mkdtemp(path.join(tmpdir(), 'slipway-packages-'));
});
afterAll(() => rm(directory, { recursive: true, force: true }));

async function archiveOf(files: Readonly<Record<string, { text: string; mode?: number }>>): Promise<Uint8Array> {
  const tar = pack();
  for (const [name, { text, mode = 0o644 }] of Object.entries(files))
    tar.entry({ name: `package/${name}`, mode }, text);
  tar.finalize();
  return Bun.gzipSync(Buffer.concat(await Array.fromAsync(tar as AsyncIterable<Uint8Array>)));
}

const integrityOf = (bytes: Uint8Array) => `sha512-${createHash('sha512').update(bytes).digest('base64')}`;

describe('what is taken of a package', () => {
  test('is a file, what lies below a folder, or all', () => {
    const take = [
      { from: 'vendor/*/bin/', to: 'codex/bin/' },
      { from: 'LICENSE', to: 'codex/LICENSE' },
    ];
    expect(placeOf('vendor/x86_64-unknown-linux-musl/bin/codex', { take })).toBe('codex/bin/codex');
    expect(placeOf('LICENSE', { take })).toBe('codex/LICENSE');
    for (const name of [
      'LICENSE.md',
      'vendor/bin/codex',
      'vendor/a/b/bin/codex',
      'vendor/a/resources/voice',
      'x/LICENSE',
    ])
      expect(placeOf(name, { take })).toBeNull();
    expect(placeOf('lib/a.js', { take: [{ from: '', to: 'npm/' }] })).toBe('npm/lib/a.js');
  });

  test('goes into the context with its permission to be run, and nothing else', async () => {
    const wanted: PinnedPackage = { name: 'tool', take: [{ from: 'bin/', to: 'tool/' }] };
    const file = path.join(directory, 'tool.tgz');
    await Bun.write(
      file,
      await archiveOf({
        'bin/run': { text: 'x'.repeat(300_000), mode: 0o750 },
        'bin/data': { text: 'data' },
        'README.md': { text: 'no' },
      }),
    );
    const tar = pack();
    const copied = copyPackage({ package: wanted, file }, tar).then(() => tar.finalize());
    const seen: [string, number, number][] = [];
    for await (const item of tar.pipe(extract())) {
      seen.push([item.header.name, item.header.mode ?? 0, item.header.size ?? 0]);
      item.resume();
    }
    await copied;
    expect(seen).toEqual([
      ['packages/tool/run', 0o755, 300_000],
      ['packages/tool/data', 0o644, 4],
    ]);
  });
});

describe('a package', () => {
  test('that is kept and has the pinned hash is not fetched again', async () => {
    const cache = await mkdtemp(path.join(directory, 'kept-'));
    const archive = await archiveOf({ 'bin/run': { text: 'run' } });
    await Bun.write(path.join(cache, '_scope_tool-1.2.3.tgz'), archive);
    const pin = { version: '1.2.3', integrity: integrityOf(archive) };
    const said: string[] = [];
    const fetched = await fetchPackages(
      [
        { name: '@scope/tool', amd64: pin, take: [] },
        { name: 'other', arm64: pin, take: [] },
      ],
      'amd64',
      cache,
      (line) => said.push(line),
    );
    expect(fetched.map(({ file }) => path.basename(file))).toEqual(['_scope_tool-1.2.3.tgz']);
    expect(said).toEqual([]);
    expect(await readdir(cache)).toEqual(['_scope_tool-1.2.3.tgz']);
  });

  test('that is not what was pinned is neither used nor kept, and one that npm cannot fetch is told', async () => {
    const cache = await mkdtemp(path.join(directory, 'fetched-'));
    const programs = await mkdtemp(path.join(directory, 'bin-'));
    const archive = path.join(directory, 'published.tgz');
    await Bun.write(archive, await archiveOf({ 'bin/run': { text: 'run' } }));
    const pinned = integrityOf(await Bun.file(archive).bytes());
    const npm = (script: string) => writeFile(path.join(programs, 'npm'), `#!/bin/sh\n${script}\n`, { mode: 0o755 });
    // The path of a process is read once, so that another npm needs another process.
    const program = `
      import { fetchPackages } from '${path.resolve('src/sandbox/image-packages.ts')}';
      const amd64 = { version: '1.0.0', integrity: process.argv[1] };
      await fetchPackages([{ name: 'tool', amd64, take: [] }], 'amd64', process.argv[2], () => {})
        .then(([{ file }]) => console.log(file), (error) => console.log(error.message));`;
    const fetched = async (integrity: string) => {
      const env = { PATH: `${programs}:/usr/bin:/bin` };
      const child = Bun.spawn([process.execPath, '--eval', program, integrity, cache], { env, stdin: 'ignore' });
      return (await new Response(child.stdout).text()).trim();
    };
    await npm(`cp '${archive}' "$4/tool-1.0.0.tgz"`);
    expect(await fetched(`sha512-${'A'.repeat(86)}==`)).toBe(
      'tool 1.0.0 is not what it was when its hash was pinned. It is not used.',
    );
    expect(await readdir(cache)).toEqual([]);
    expect(await fetched(pinned)).toBe(path.join(cache, 'tool-1.0.0.tgz'));
    await rm(path.join(cache, 'tool-1.0.0.tgz'));
    await npm('echo "npm error 404 Not Found" >&2; exit 1');
    expect(await fetched(pinned)).toBe('npm could not fetch tool 1.0.0: npm error 404 Not Found');
    expect(await readdir(cache)).toEqual([]);
  });

  test('of this image has a pin of its own for every processor, by version and hash', () => {
    for (const architecture of ['amd64', 'arm64'] as const) {
      const pins = pinnedPackages.flatMap((wanted) => wanted[architecture] ?? []);
      expect(pins).toHaveLength(3);
      for (const { version, integrity } of pins) {
        expect(version).toMatch(/^\d+\.\d+\.\d+/);
        expect(integrity).toMatch(/^sha512-[A-Za-z0-9+/]{86}==$/);
      }
    }
    expect(imageReference()).toMatch(/^slipway-sandbox:[0-9a-f]{16}$/);
  });
});
