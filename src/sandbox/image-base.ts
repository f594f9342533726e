import { Readable } from 'node:stream';
import type Docker from 'dockerode';
import { ask } from './docker-engine.ts';
import { type Architecture, debianPackages } from './image.ts';
import { SandboxFailure } from './sandbox.ts';

const usualBase = 'debian:bookworm-slim';
/** Where no registry of images can be reached the engine may take its time to say so. */
const pullMs = 10 * 60_000;
/** A program whose output has ended is given so long to end itself. */
const settleMs = 2000;
const release = 'bookworm';

/**
 * The image that the sandbox image is built on: Debian's own from a registry, or one made of Debian's packages where
 * none can be reached. Answers its reference. Throws `SandboxFailure`.
 */
export async function provideBase(
  docker: Docker,
  architecture: Architecture,
  mirror: string | null,
  say: (line: string) => void,
): Promise<string> {
  if (await exists(docker, usualBase)) return usualBase;
  const made = `slipway-base:${release}-${Bun.hash(debianPackages.join(' ')).toString(16)}`;
  if (await exists(docker, made)) return made;
  try {
    say(`pulling ${usualBase}`);
    const progress = await ask(docker.pull(usualBase), 60_000);
    await ask(
      new Promise((resolve, reject) =>
        docker.modem.followProgress(progress, (error) => (error ? reject(error) : resolve(null))),
      ),
      pullMs,
    );
    return usualBase;
  } catch {
    say('no registry of images can be reached: making the base of Debian packages instead');
  }
  await makeBase(docker, architecture, mirror, made);
  return made;
}

async function exists(docker: Docker, reference: string): Promise<boolean> {
  return ask(docker.getImage(reference).inspect()).then(
    () => true,
    (error) => {
      if ((error.cause as { statusCode?: unknown } | undefined)?.statusCode === 404) return false;
      throw error;
    },
  );
}

/** Bootstraps Debian with every package of the image, so that the build needs no network, and imports it. */
async function makeBase(
  docker: Docker,
  architecture: Architecture,
  mirror: string | null,
  reference: string,
): Promise<void> {
  const program = Bun.which('mmdebstrap');
  if (program === null) {
    throw new SandboxFailure(
      'failed',
      'No registry of images can be reached, and mmdebstrap is missing to make the base of Debian packages. Install the package mmdebstrap.',
    );
  }
  const child = Bun.spawn(
    [
      program,
      '--quiet',
      '--variant=minbase',
      '--components=main',
      `--architectures=${architecture}`,
      `--include=${debianPackages.join(',')}`,
      release,
      '-',
      ...(mirror === null ? [] : [mirror]),
    ],
    { stdin: 'ignore', stdout: 'pipe', stderr: 'pipe' },
  );
  const complaint = new Response(child.stderr).text();
  const imported = docker.importImage(Readable.fromWeb(child.stdout as never), {
    repo: reference.split(':')[0],
    tag: reference.split(':')[1],
  } as never) as unknown as Promise<NodeJS.ReadableStream>;
  try {
    const progress = await ask(imported, pullMs);
    const done = new Promise((resolve, reject) =>
      docker.modem.followProgress(progress, (error) => (error ? reject(error) : resolve(null))),
    );
    await ask(done, pullMs);
  } catch (error) {
    // What breaks off breaks the import as well: it is mmdebstrap then that has to say why.
    const code = await Promise.race([child.exited, Bun.sleep(settleMs)]);
    child.kill();
    if (code === undefined || code === 0) throw error;
  }
  if ((await child.exited) === 0) return;
  await ask(docker.getImage(reference).remove({ force: true })).catch(() => {});
  throw new SandboxFailure('failed', `mmdebstrap failed: ${(await complaint).trim().split('\n').at(-1) ?? ''}`);
}
