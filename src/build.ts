import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import { parseArgs } from 'node:util';

/**
 * `npm run build [-- --target TARGET] [-- --outfile FILE]` makes one executable of the server and its commands:
 * dist/slipway. It needs neither Bun nor this repository; SQL, the sandbox's build context and prices are inside.
 */
const { values } = parseArgs({
  options: {
    /** As Bun names them, for example bun-linux-arm64; this machine's otherwise. */
    target: { type: 'string' },
    outfile: { type: 'string' },
  },
});
const root = path.join(import.meta.dir, '..');
const outfile = path.resolve(values.outfile ?? path.join(root, 'dist', 'slipway'));
await mkdir(path.dirname(outfile), { recursive: true });

const { success, logs } = await Bun.build({
  entrypoints: [path.join(import.meta.dir, 'main.ts')],
  target: 'bun',
  // Top-level await and bytecode go together in this form only.
  format: 'esm',
  minify: true,
  bytecode: true,
  // Native parts of the engine's client for SSH, which is not used. They are there or not as npm could compile them, and
  // the client does without them.
  external: ['cpu-features', '*/sshcrypto.node'],
  compile: {
    outfile,
    ...(values.target === undefined ? {} : { target: values.target as Bun.Build.CompileTarget }),
    // A file that happens to lie in the current directory must not change the server's settings.
    autoloadDotenv: false,
    autoloadBunfig: false,
  },
  throw: false,
});
for (const log of logs) process.stderr.write(`${log}\n`);
if (success) process.stdout.write(`${path.relative(process.cwd(), outfile)}\n`);
process.exitCode = success ? 0 : 1;
