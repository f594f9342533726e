/**
 * What `npm run …` starts: plain Node and nothing installed, because on a fresh machine there is nothing else. It
 * installs the dependencies where they are not those of package-lock.json, finds Bun among them, and hands over.
 *
 *   node src/demo/bootstrap.mjs demo|serve|test|check|bench|build|slipway [ARGUMENTS]
 */
import { spawn, spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { constants } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../..', import.meta.url));
const leastNode = 20;
/** Tests against the real engine start containers; each of them says itself where it needs longer. */
const testTimeoutMs = 60_000;

const inRoot = (...names) => path.join(root, ...names);

/** Ends the process with one line that says what is wrong. */
function fail(message, code = 1) {
  process.stderr.write(`slipway: ${message}\n`);
  process.exit(code);
}

function readJson(file) {
  try {
    return JSON.parse(readFileSync(file, 'utf8'));
  } catch {
    return null;
  }
}

/**
 * npm leaves a lock file of what it has installed once it is done. Packages of other platforms are not in it: they are
 * optional, and those of this platform are looked for where they are used.
 */
function isInstalled() {
  const wanted = readJson(inRoot('package-lock.json'))?.packages;
  const installed = readJson(inRoot('node_modules', '.package-lock.json'))?.packages;
  if (!wanted) fail('package-lock.json is missing or broken. Check the repository out again.');
  if (!installed) return false;
  return Object.entries(wanted).every(([name, { version, integrity, optional }]) => {
    if (name === '') return true;
    const found = installed[name];
    return found ? found.version === version && found.integrity === integrity : optional === true;
  });
}

function install() {
  process.stderr.write('installing dependencies\n');
  const args = ['ci', '--include=dev', '--include=optional', '--no-audit', '--no-fund', '--loglevel=error'];
  // npm says where it is itself when it runs this; its own program need not be on the path then.
  const npm = process.env.npm_execpath;
  const [program, first] = npm && /npm-cli\.c?js$/.test(npm) ? [process.execPath, [npm]] : ['npm', []];
  const { error, status } = spawnSync(program, [...first, ...args], {
    cwd: root,
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  if (error?.code === 'ENOENT') fail('npm is missing. Install Node.js with npm.');
  if (error) fail(`npm could not be started: ${error.message}`);
  if (status !== 0) fail('the dependencies could not be installed: `npm ci` failed, its message is above.');
}

/**
 * Bun's program. The package's install script moves it to bun/bin; where npm runs no install scripts it is still in the
 * package of the platform. The one that runs is taken: a processor may be too old for the usual one.
 */
function findBun() {
  const version = readJson(inRoot('node_modules', 'bun', 'package.json'))?.version;
  const os = process.platform === 'win32' ? 'windows' : process.platform;
  const cpu = process.arch === 'arm64' ? 'aarch64' : process.arch;
  const packages = ['', '-baseline', '-musl', '-musl-baseline'].map((variant) => `bun-${os}-${cpu}${variant}`);
  const program = process.platform === 'win32' ? 'bun.exe' : 'bun';
  const places = [
    inRoot('node_modules', 'bun', 'bin', 'bun.exe'),
    ...packages.map((name) => inRoot('node_modules', '@oven', name, 'bin', program)),
  ];
  return places.filter(existsSync).find((place) => {
    const { status, stdout } = spawnSync(place, ['--version'], {
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    return status === 0 && stdout.trim() === version;
  });
}

function provideBun() {
  const hadAll = isInstalled();
  if (!hadAll) install();
  const bun = findBun();
  if (bun) return bun;
  // A folder that was copied from another machine has that machine's Bun.
  if (hadAll) install();
  return (
    findBun() ?? fail('Bun does not run on this machine: its npm package has no program for this system and processor.')
  );
}

/** Runs a program on this terminal, passes signals on to it, and answers its exit code. */
function run(program, args, cwd) {
  return new Promise((resolve) => {
    const child = spawn(program, args, { cwd, stdio: 'inherit' });
    const passOn = (signal) => {
      // A terminal sends its Ctrl-C to the child as well; twice would end it in the middle of stopping.
      if (signal === 'SIGINT' && process.stdin.isTTY) return;
      child.kill(signal);
    };
    const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'];
    for (const signal of signals) process.on(signal, passOn);
    const end = (code) => {
      for (const signal of signals) process.off(signal, passOn);
      resolve(code);
    };
    child.once('error', (error) => {
      process.stderr.write(`slipway: ${path.basename(program)} could not be started: ${error.message}\n`);
      end(1);
    });
    child.once('exit', (code, signal) => end(code ?? 128 + (constants.signals[signal] ?? 0)));
  });
}

/** Runs the first, and the second only where that went well. */
const both = async (first, second) => (await first()) || second();

const here = process.cwd();
const slipway = (bun, ...args) => run(bun, [inRoot('src', 'main.ts'), ...args], here);
const prepare = (bun) => run(bun, [inRoot('src', 'demo', 'prepare.ts')], root);

/** Every word with what it does: each is given Bun and the arguments, and answers the exit code. */
const words = {
  demo: (bun, args) => slipway(bun, 'demo', ...args),
  serve: (bun, args) => slipway(bun, 'serve', ...args),
  slipway: (bun, args) => slipway(bun, ...args),
  test: (bun, args) =>
    both(
      () => prepare(bun),
      () => run(bun, ['test', '--timeout', String(testTimeoutMs), ...args], root),
    ),
  bench: (bun, args) =>
    both(
      () => prepare(bun),
      () => run(bun, [inRoot('test', 'bench', 'main.ts'), ...args], root),
    ),
  build: (bun, args) => run(bun, [inRoot('src', 'build.ts'), ...args], root),
  /** All three always run, so that one look shows everything. */
  async check(bun) {
    const node = process.execPath;
    const codes = [
      await run(node, [inRoot('node_modules', 'typescript', 'bin', 'tsc'), '--noEmit'], root),
      await run(node, [inRoot('node_modules', '@biomejs', 'biome', 'bin', 'biome'), 'check'], root),
      await run(bun, ['test', 'test/arch'], root),
    ];
    return Math.max(...codes);
  },
};

if (Number.parseInt(process.versions.node, 10) < leastNode) {
  fail(`Node.js ${leastNode} or newer is needed, this is ${process.versions.node}.`);
}
const [word, ...args] = process.argv.slice(2);
if (!Object.hasOwn(words, word ?? '')) {
  fail(`say what to do: node src/demo/bootstrap.mjs ${Object.keys(words).join('|')}`, 2);
}
process.exitCode = await words[word](provideBun(), args);
