import { createHash } from 'node:crypto';
import dockerfile from '../../sandbox/Dockerfile' with { type: 'text' };
import debian from '../../sandbox/debian.txt' with { type: 'text' };
import enter from '../../sandbox/enter' with { type: 'text' };
import packages from '../../sandbox/packages.json';
import relay from '../../sandbox/relay' with { type: 'text' };

/** A package of the npm registry that goes into the image, pinned for each architecture that has it. */
export interface PinnedPackage {
  readonly name: string;
  readonly amd64?: Pin;
  readonly arm64?: Pin;
  /** What is taken of it: a path below the package, `*` for one folder of any name; a path that ends in `/` takes all below. */
  readonly take: readonly { readonly from: string; readonly to: string }[];
}

export interface Pin {
  readonly version: string;
  /** As npm writes it: `sha512-` and base64. */
  readonly integrity: string;
}

export type Architecture = 'amd64' | 'arm64';

/** The files of the build context that are text. */
export const contextFiles: Readonly<Record<string, string>> = {
  Dockerfile: dockerfile,
  'debian.txt': debian,
  enter,
  relay,
};

/** The names of the Debian packages that the image has. */
export const debianPackages: readonly string[] = debian.split('\n').filter((name) => name !== '');

export const pinnedPackages: readonly PinnedPackage[] = packages;

/** The image's name, with a tag that follows from its content: another content is another image. */
export function imageReference(): string {
  const hash = createHash('sha256');
  for (const [name, text] of Object.entries(contextFiles)) hash.update(`${name}\0${text}\0`);
  hash.update(JSON.stringify(pinnedPackages));
  return `slipway-sandbox:${hash.digest('hex').slice(0, 16)}`;
}
