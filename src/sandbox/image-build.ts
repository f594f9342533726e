import { Readable } from 'node:stream';
import type Docker from 'dockerode';
import { pack } from 'tar-stream';
import { ask, openEngine } from './docker-engine.ts';
import { type Architecture, contextFiles, imageReference, pinnedPackages } from './image.ts';
import { provideBase } from './image-base.ts';
import { copyPackage, type FetchedPackage, fetchPackages } from './image-packages.ts';
import { SandboxFailure } from './sandbox.ts';

export interface ImageBuild {
  /** As DOCKER_HOST; null for the engine's usual socket. */
  readonly dockerHost: string | null;
  /** Where fetched packages are kept for the next build. */
  readonly cacheDirectory: string;
  /** A mirror of Debian's packages for a base that is made of them; null for the usual one. */
  readonly debianMirror: string | null;
  say(line: string): void;
}

/** Builds the sandbox image where it is not there, and answers its reference. Throws `SandboxFailure`. */
export async function buildImage({ dockerHost, cacheDirectory, debianMirror, say }: ImageBuild): Promise<string> {
  const docker = await openEngine(dockerHost)();
  const reference = imageReference();
  const { Arch } = await ask(docker.version(), 10_000);
  if (await isBuilt(docker, reference)) return reference;
  const architecture = architectureOf(Arch);
  const [base, packages] = await Promise.all([
    provideBase(docker, architecture, debianMirror, say),
    fetchPackages(pinnedPackages, architecture, cacheDirectory, say),
  ]);
  say(`building ${reference}`);
  const progress = await ask(
    docker.buildImage(context(packages), { t: reference, buildargs: { BASE: base }, rm: true, forcerm: true }),
    15 * 60_000,
  );
  await followBuild(docker, progress, say);
  return reference;
}

async function isBuilt(docker: Docker, reference: string): Promise<boolean> {
  const images = await ask(docker.listImages({ filters: { reference: [reference] } }));
  return images.length > 0;
}

function architectureOf(name: string): Architecture {
  if (name === 'amd64' || name === 'arm64') return name;
  throw new SandboxFailure('failed', `There is no sandbox image for the architecture ${name}.`);
}

/** The build context as a tar stream: the text files, and what is taken of the packages. */
function context(packages: readonly FetchedPackage[]): NodeJS.ReadableStream {
  const tar = pack();
  const fill = async () => {
    for (const [name, text] of Object.entries(contextFiles)) {
      tar.entry({ name, mode: text.startsWith('#!') ? 0o755 : 0o644, mtime: new Date(0) }, text);
    }
    for (const fetched of packages) await copyPackage(fetched, tar);
    tar.finalize();
  };
  fill().catch((error) => tar.destroy(error));
  return Readable.from(tar as AsyncIterable<Uint8Array>);
}

/** Reads the build's messages to their end: the last of them says whether it failed. */
async function followBuild(
  docker: Docker,
  progress: NodeJS.ReadableStream,
  say: (line: string) => void,
): Promise<void> {
  let last = '';
  await new Promise<void>((resolve, reject) => {
    docker.modem.followProgress(
      progress,
      (error) =>
        error
          ? reject(new SandboxFailure('failed', `The sandbox image could not be built: ${error.message}`, error))
          : resolve(),
      (event: { stream?: string; error?: string }) => {
        const line = event.stream?.trim() ?? '';
        if (line.startsWith('Step ')) say(line);
        if (line !== '') last = line;
        if (event.error !== undefined)
          reject(new SandboxFailure('failed', `The sandbox image could not be built: ${event.error} ${last}`));
      },
    );
  });
}
