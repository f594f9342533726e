import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { mkdir, mkdtemp, readdir, rename, rm } from 'node:fs/promises';
import path from 'node:path';
import { pipeline } from 'node:stream';
import { createGunzip } from 'node:zlib';
import { extract, type Pack } from 'tar-stream';
import type { Architecture, Pin, PinnedPackage } from './image.ts';
import { SandboxFailure } from './sandbox.ts';

/** A package's archive on this machine, checked against its pin. */
export interface FetchedPackage {
  readonly package: PinnedPackage;
  readonly file: string;
}

/**
 * Fetches what the architecture needs by the user's own npm, whose configuration says from where, and keeps it in
 * `directory`. What does not have the pinned hash is not kept. Throws `SandboxFailure`.
 */
export async function fetchPackages(
  packages: readonly PinnedPackage[],
  architecture: Architecture,
  directory: string,
  say: (line: string) => void,
): Promise<FetchedPackage[]> {
  await mkdir(directory, { recursive: true });
  const fetched: FetchedPackage[] = [];
  for (const wanted of packages) {
    const pin = wanted[architecture];
    if (!pin) continue;
    const file = path.join(directory, `${wanted.name.replace(/[@/]/g, '_')}-${pin.version}.tgz`);
    if (!(await matches(file, pin))) {
      say(`fetching ${wanted.name} ${pin.version}`);
      await fetchOne(wanted.name, pin, file);
    }
    fetched.push({ package: wanted, file });
  }
  return fetched;
}

async function fetchOne(name: string, pin: Pin, file: string): Promise<void> {
  const place = await mkdtemp(path.join(path.dirname(file), 'fetch-'));
  try {
    const npm = Bun.which('npm');
    if (npm === null)
      throw new SandboxFailure('failed', 'npm is needed to build the sandbox image. Install Node.js with npm.');
    const child = Bun.spawn([npm, 'pack', `${name}@${pin.version}`, '--pack-destination', place, '--silent'], {
      cwd: place,
      stdin: 'ignore',
      stdout: 'ignore',
      stderr: 'pipe',
    });
    const [code, complaint] = await Promise.all([child.exited, new Response(child.stderr).text()]);
    if (code !== 0) {
      throw new SandboxFailure(
        'failed',
        `npm could not fetch ${name} ${pin.version}: ${complaint.trim().split('\n').at(-1) ?? ''}`,
      );
    }
    const [archive] = await readdir(place);
    if (archive === undefined || !(await matches(path.join(place, archive), pin))) {
      throw new SandboxFailure(
        'failed',
        `${name} ${pin.version} is not what it was when its hash was pinned. It is not used.`,
      );
    }
    await rename(path.join(place, archive), file);
  } finally {
    await rm(place, { recursive: true, force: true });
  }
}

async function matches(file: string, { integrity }: Pin): Promise<boolean> {
  if (!(await Bun.file(file).exists())) return false;
  const hash = createHash('sha512');
  for await (const piece of createReadStream(file)) hash.update(piece);
  return integrity === `sha512-${hash.digest('base64')}`;
}

/** Copies what is taken of a package into a tar, below `packages/`. */
export async function copyPackage({ package: wanted, file }: FetchedPackage, tar: Pack): Promise<void> {
  const entries = extract();
  pipeline(createReadStream(file), createGunzip(), entries as never, () => {});
  for await (const item of entries) {
    const to = placeOf(item.header.name.replace(/^[^/]+\//, ''), wanted);
    if (to === null || item.header.type !== 'file') {
      item.resume();
      continue;
    }
    const mode = (item.header.mode ?? 0) & 0o111 ? 0o755 : 0o644;
    const copied = tar.entry({ name: `packages/${to}`, size: item.header.size ?? 0, mode, mtime: new Date(0) });
    for await (const piece of item) {
      if (!copied.write(piece)) await new Promise<void>((resolve) => copied.once('drain', () => resolve()));
    }
    copied.end(undefined);
  }
}

/** Where a file of a package goes, null for one that is not taken. */
export function placeOf(name: string, { take }: Pick<PinnedPackage, 'take'>): string | null {
  for (const { from, to } of take) {
    const pattern = new RegExp(`^${from.split('*').map(RegExp.escape).join('[^/]+')}`);
    const rest = name.replace(pattern, '');
    const found = pattern.test(name);
    if (found && from === '') return to + name;
    if (found && (from.endsWith('/') ? rest !== '' : rest === '')) return to + rest;
  }
  return null;
}
