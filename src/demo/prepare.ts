import { type Config, ConfigError, readConfig } from '../config.ts';
import { buildImage } from '../sandbox/image-build.ts';
import { SandboxFailure } from '../sandbox/sandbox.ts';
import { ensureEngine } from './engine.ts';

/**
 * Sees to it that there is a Docker engine and the sandbox image, and answers the image's reference. Whatever cannot be
 * had is thrown as a `ConfigError` that says in one line what is missing.
 */
export async function prepare({ config, say }: { config: Config; say(line: string): void }): Promise<string> {
  try {
    await ensureEngine({ dockerHost: config.dockerHost, say });
    return (
      config.sandboxImage ??
      (await buildImage({
        dockerHost: config.dockerHost,
        cacheDirectory: config.cacheDir,
        debianMirror: config.debianMirror,
        say,
      }))
    );
  } catch (error) {
    if (error instanceof SandboxFailure) throw new ConfigError(error.message, { cause: error });
    throw error;
  }
}

if (import.meta.main) {
  try {
    await prepare({ config: readConfig(), say: (line) => process.stderr.write(`${line}\n`) });
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    process.stderr.write(`slipway: ${error.message}\n`);
    process.exitCode = 1;
  }
}
