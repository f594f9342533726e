import { afterAll, describe, expect, test } from 'bun:test';
import { chmod, copyFile, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';

/** The real bootstrap under Node, in a checkout of its own with an npm and a Bun that only write down what they do. */
const source = path.join(import.meta.dir, '../../src/demo/bootstrap.mjs');
const node = Bun.which('node') ?? 'node';
const home = await mkdtemp(path.join(tmpdir(), 'slipway boot '));
afterAll(() => rm(home, { recursive: true, force: true }));

const cpu = process.arch === 'arm64' ? 'aarch64' : process.arch;
const platformPackage = `@oven/bun-${process.platform}-${cpu}`;
const lock = (version: string, more: object = {}) => ({
  packages: {
    ...more,
    '': { name: 'sample' },
    'node_modules/bun': { version, integrity: `sha512-${version}` },
    'node_modules/@oven/bun-plan9-mips': { version, integrity: 'sha512-other', optional: true },
  },
});

const fakeBun = (version: string) => `#!/bin/sh
if [ "$1" = --version ]; then echo ${version}; exit 0; fi
[ "$2" = hang ] && { trap 'exit 7' TERM; echo ready; while :; do sleep 0.05; done; }
echo "bun in $(pwd): $*"
[ -e prepare-fails ] && case "$1" in */prepare.ts) exit 9;; esac
for word; do last=$word; done
case "$last" in fail-*) exit "\${last#fail-}";; esac
`;

/** Installs as npm does, into the current directory; `where` says whether install scripts ran. */
const fakeNpm = (where: string) => `
const fs = require('node:fs');
fs.appendFileSync('npm.log', process.argv.slice(2).join(' ') + '\\n');
if (fs.existsSync('npm-fails')) { console.error('npm error: the registry is on fire'); process.exit(1); }
const lock = JSON.parse(fs.readFileSync('package-lock.json', 'utf8'));
const { '': _, 'node_modules/@oven/bun-plan9-mips': __, ...packages } = lock.packages;
const version = packages['node_modules/bun'].version;
fs.mkdirSync('node_modules/bun', { recursive: true });
fs.writeFileSync('node_modules/bun/package.json', JSON.stringify({ version }));
const place = 'node_modules/' + ${JSON.stringify(where)};
fs.mkdirSync(place, { recursive: true });
fs.copyFileSync('fake-bun', place + (place.endsWith('/bun/bin') ? '/bun.exe' : '/bun'));
fs.writeFileSync('node_modules/.package-lock.json', JSON.stringify({ packages }));
`;

async function checkout(options: { version?: string; bunIn?: string } = {}) {
  const root = await mkdtemp(path.join(home, 'check out '));
  const { version = '1.2.3', bunIn = 'bun/bin' } = options;
  await mkdir(path.join(root, 'src/demo'), { recursive: true });
  await copyFile(source, path.join(root, 'src/demo/bootstrap.mjs'));
  await writeFile(path.join(root, 'package-lock.json'), JSON.stringify(lock(version)));
  await writeFile(path.join(root, 'fake-bun'), fakeBun(version));
  await chmod(path.join(root, 'fake-bun'), 0o755);
  await writeFile(path.join(root, 'npm-cli.js'), fakeNpm(bunIn));
  const start = (...words: string[]) =>
    Bun.spawn([node, path.join(root, 'src/demo/bootstrap.mjs'), ...words], {
      cwd: home,
      env: { PATH: '/usr/bin:/bin', npm_execpath: path.join(root, 'npm-cli.js') },
      stdin: 'ignore',
      stdout: 'pipe',
      stderr: 'pipe',
    });
  return {
    root,
    start,
    async run(...words: string[]) {
      const child = start(...words);
      const [code, stdout, stderr] = await Promise.all([
        child.exited,
        new Response(child.stdout).text(),
        new Response(child.stderr).text(),
      ]);
      return { code, stdout, stderr };
    },
    npmCalls: async () =>
      (
        await Bun.file(path.join(root, 'npm.log'))
          .text()
          .catch(() => '')
      )
        .trim()
        .split('\n'),
  };
}

describe('dependencies', () => {
  test('are installed once, and again where the lock file has changed', async () => {
    const { root, run, npmCalls } = await checkout();
    expect(await run('slipway', 'version')).toMatchObject({ code: 0, stderr: 'installing dependencies\n' });
    expect(await run('slipway', 'version')).toMatchObject({ code: 0, stderr: '' });
    expect(await npmCalls()).toEqual([expect.stringMatching(/^ci --include=dev --include=optional /)]);
    await writeFile(path.join(root, 'package-lock.json'), JSON.stringify(lock('1.2.4')));
    await writeFile(path.join(root, 'fake-bun'), fakeBun('1.2.4'));
    expect((await run('slipway', 'version')).code).toBe(0);
    expect(await npmCalls()).toHaveLength(2);
    const another = { 'node_modules/another': { version: '1.0.0', integrity: 'sha512-another' } };
    await writeFile(path.join(root, 'package-lock.json'), JSON.stringify(lock('1.2.4', another)));
    expect((await run('slipway', 'version')).code).toBe(0);
    expect(await npmCalls()).toHaveLength(3);
  });

  test('that npm cannot install end it in one line, below what npm says', async () => {
    const { root, run } = await checkout();
    await writeFile(path.join(root, 'npm-fails'), '');
    const { code, stderr } = await run('demo');
    expect(code).toBe(1);
    expect(stderr).toContain('npm error: the registry is on fire\nslipway: the dependencies could not be installed');
  });

  test('without npm are asked for in one line', async () => {
    const { root } = await checkout();
    const child = Bun.spawn([node, path.join(root, 'src/demo/bootstrap.mjs'), 'demo'], {
      env: { PATH: home },
      stderr: 'pipe',
    });
    expect(await new Response(child.stderr).text()).toEndWith('slipway: npm is missing. Install Node.js with npm.\n');
    expect(await child.exited).toBe(1);
  });
});

describe('Bun', () => {
  test('is found where npm ran no install scripts', async () => {
    const { run } = await checkout({ bunIn: `${platformPackage}/bin` });
    expect(await run('slipway', 'version')).toMatchObject({ code: 0 });
  });

  test('is the baseline one where the usual one does not run', async () => {
    const { root, run } = await checkout({ bunIn: `${platformPackage}-baseline/bin` });
    const usual = path.join(root, 'node_modules', platformPackage, 'bin');
    await mkdir(usual, { recursive: true });
    await writeFile(path.join(usual, 'bun'), '#!/bin/sh\nkill -ILL $$\n', { mode: 0o755 });
    expect(await run('slipway', 'version')).toMatchObject({ code: 0 });
  });

  test('that runs nowhere ends it in one line, after one more try to install it', async () => {
    const { run, npmCalls } = await checkout({ bunIn: '@oven/bun-plan9-mips/bin' });
    const { code, stderr } = await run('slipway', 'version');
    expect(code).toBe(1);
    expect(stderr).toContain('slipway: Bun does not run on this machine');
    await run('slipway', 'version');
    expect(await npmCalls()).toHaveLength(2);
  });
});

describe('a word', () => {
  test('that there is not ends it with all that there are', async () => {
    const { run } = await checkout();
    expect(await run('toString')).toEqual({
      code: 2,
      stdout: '',
      stderr: 'slipway: say what to do: node src/demo/bootstrap.mjs demo|serve|slipway|test|bench|build|check\n',
    });
  });

  test('of the program runs where the user is, with the arguments as they are and its exit code', async () => {
    const { root, run } = await checkout();
    expect(await run('demo', '--data-dir', 'a b', 'fail-3')).toMatchObject({
      code: 3,
      stdout: `bun in ${home}: ${root}/src/main.ts demo --data-dir a b fail-3\n`,
    });
  });

  test('of the repository runs in it: the engine and the image come first, then the tests', async () => {
    const { root, run } = await checkout();
    const { code, stdout } = await run('test', 'test/unit', 'fail-5');
    expect(code).toBe(5);
    expect(stdout.split('\n').slice(0, 2)).toEqual([
      `bun in ${root}: ${root}/src/demo/prepare.ts`,
      expect.stringMatching(/: test --timeout \d+ test\/unit fail-5$/),
    ]);
  });

  test('of the tests does not start them where engine or image cannot be had', async () => {
    const { root, run } = await checkout();
    await writeFile(path.join(root, 'prepare-fails'), '');
    expect(await run('test')).toMatchObject({ code: 9, stdout: `bun in ${root}: ${root}/src/demo/prepare.ts\n` });
  });

  test('passes SIGTERM on and answers with the exit code that follows', async () => {
    const { start } = await checkout();
    const child = start('slipway', 'hang');
    const reader = child.stdout.getReader();
    expect(new TextDecoder().decode((await reader.read()).value)).toBe('ready\n');
    child.kill('SIGTERM');
    expect(await child.exited).toBe(7);
  });
});

test('a check runs all three and answers the worst exit code', async () => {
  const { root, run } = await checkout();
  await run('slipway', 'version');
  for (const [file, code] of [
    ['typescript/bin/tsc', 2],
    ['@biomejs/biome/bin/biome', 1],
  ] as const) {
    await mkdir(path.join(root, 'node_modules', path.dirname(file)), { recursive: true });
    await writeFile(path.join(root, 'node_modules', file), `console.log('${file}'); process.exit(${code})`);
  }
  const { code, stdout } = await run('check');
  expect(code).toBe(2);
  expect(stdout.trim().split('\n')).toEqual([
    'typescript/bin/tsc',
    '@biomejs/biome/bin/biome',
    `bun in ${root}: test test/arch`,
  ]);
});
