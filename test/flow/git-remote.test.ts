import { describe, expect, test } from 'bun:test';
import { readdir, readFile } from 'node:fs/promises';
import path from 'node:path';
import { type GitProviderSettings, gitProvider } from '../../src/integrations/git.ts';
import { RepositoryUnavailable } from '../../src/integrations/provider.ts';
import { plainHttpHosts } from '../../src/integrations/url.ts';
import { connectProxy } from '../support/connect-proxy.ts';
import { localRepository, temporaryDirectory } from '../support/git.ts';
import { gitServer } from '../support/gitserver.ts';

const id = '0198b2a0-0000-7000-8000-000000000002';
const token = 'ghp_0123456789abcdefghijklmnopqrstuvwxyz';
const basic = Buffer.from(`x-access-token:${token}`).toString('base64');

async function provider(settings: Partial<GitProviderSettings> = {}) {
  const data = await temporaryDirectory();
  return {
    git: gitProvider({
      dataDir: data.path,
      extraCa: null,
      allowsPlainHttp: plainHttpHosts(['127.0.0.1']),
      ...settings,
    }),
    dataDir: data.path,
    [Symbol.asyncDispose]: () => data[Symbol.asyncDispose](),
  };
}

const sourceAt = (origin: string) => ({
  id,
  fullName: 'demo',
  cloneUrl: `${origin}/demo`,
  defaultBranch: 'main',
});

/** Arguments of the processes that run now, as every user of the machine may see them. */
async function everyCommandLine(): Promise<string[]> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name));
  return Promise.all(pids.map((pid) => readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')));
}

const failureOf = (promise: Promise<unknown>): Promise<Error> =>
  promise.then(
    () => new Error('no failure'),
    (error) => error as Error,
  );

describe('a repository over http', () => {
  test('is read with its token, which stays out of every file', async () => {
    await using at = await provider();
    await using origin = await localRepository();
    const commit = await origin.commit({ a: '1' });
    await using server = gitServer({ root: path.dirname(origin.path), token });
    expect(await at.git.discover(`${server.origin}/demo`, token)).toEqual({
      fullName: 'demo',
      defaultBranch: 'main',
      private: true,
    });
    const checkout = await at.git.checkout(sourceAt(server.origin), token);
    expect(checkout.commit).toBe(commit);
    const tar = Buffer.from(await new Response(checkout.open()).arrayBuffer()).toString('latin1');
    expect(tar).toContain(`${server.origin}/demo`);
    const files = await readdir(at.dataDir, { recursive: true, withFileTypes: true });
    const texts = await Promise.all(
      files.filter((file) => file.isFile()).map((file) => Bun.file(path.join(file.parentPath, file.name)).text()),
    );
    for (const text of [tar, ...texts]) {
      expect(text).not.toContain(token);
      expect(text).not.toContain(basic);
    }
  });

  test('is public when it was read without a token', async () => {
    await using at = await provider();
    await using origin = await localRepository();
    await origin.commit({ a: '1' });
    await using server = gitServer({ root: path.dirname(origin.path) });
    expect(await at.git.discover(`${server.origin}/demo`, null)).toMatchObject({ private: false });
    expect(server.seen.every(({ authorization }) => authorization === null)).toBe(true);
  });

  test('costs one process and one exchange when nothing has changed', async () => {
    await using at = await provider();
    await using origin = await localRepository();
    await origin.commit({ a: '1' });
    await using server = gitServer({ root: path.dirname(origin.path), token });
    await at.git.checkout(sourceAt(server.origin), token);
    server.seen.length = 0;
    await at.git.checkout(sourceAt(server.origin), token);
    expect(server.seen.map((request) => request.path)).toEqual(['/demo/info/refs', '/demo/git-upload-pack']);
  });

  test('never shows the token in the arguments of a process', async () => {
    await using origin = await localRepository();
    await origin.commit({ a: '1' });
    const commandLines: string[] = [];
    await using server = gitServer({
      root: path.dirname(origin.path),
      token,
      async answer() {
        commandLines.push(...(await everyCommandLine()));
        return undefined;
      },
    });
    await using at = await provider();
    await at.git.checkout(sourceAt(server.origin), token);
    expect(commandLines.join()).toContain(`${server.origin}/demo`);
    expect(commandLines.join()).not.toContain(token);
    expect(commandLines.join()).not.toContain(basic);
  });

  const refusals: [string, () => Response, string][] = [
    ['404', () => new Response('', { status: 404 }), 'was not found'],
    [
      '401',
      () => new Response('', { status: 401, headers: { 'www-authenticate': 'Basic realm="x"' } }),
      'refused access',
    ],
    ['403', () => new Response('', { status: 403 }), 'refused access'],
  ];
  test.each(refusals)('answering %s is told in plain words without address or token', async (_, answer, words) => {
    await using at = await provider();
    await using server = gitServer({ root: at.dataDir, answer });
    const error = await failureOf(at.git.checkout(sourceAt(server.origin), token));
    expect(error).toBeInstanceOf(RepositoryUnavailable);
    expect(error.message).toContain(words);
    expect(error.message).not.toContain('127.0.0.1');
    expect(Bun.inspect(error)).not.toContain(token);
    expect(Bun.inspect(error)).not.toContain(basic);
    await expect(at.git.discover(`${server.origin}/demo`, token)).rejects.toMatchObject({
      code: 'integration_refresh_failed',
    });
  });

  test('that redirects is refused, and the other host is never given the token', async () => {
    await using at = await provider();
    await using origin = await localRepository();
    await origin.commit({ a: '1' });
    await using other = gitServer({ root: path.dirname(origin.path) });
    await using server = gitServer({
      root: at.dataDir,
      answer: (request) => Response.redirect(request.url.replace(/^http:\/\/[^/]+/, other.origin), 301),
    });
    const error = await failureOf(at.git.checkout(sourceAt(server.origin), token));
    expect(error.message).toContain('present address');
    expect(other.seen).toEqual([]);
  });

  test('where nobody listens is unreachable', async () => {
    await using at = await provider();
    const server = gitServer({ root: at.dataDir });
    await server[Symbol.asyncDispose]();
    const error = await failureOf(at.git.checkout(sourceAt(server.origin), null));
    expect(error.message).toContain('could not be reached');
  });

  test('that never answers is given up, and its processes are gone', async () => {
    const left = Promise.withResolvers<void>();
    await using at = await provider({ listMs: 300 });
    await using server = gitServer({
      root: at.dataDir,
      answer: async (request) => {
        request.signal.addEventListener('abort', () => left.resolve());
        await left.promise;
        return new Response('');
      },
    });
    const error = await failureOf(at.git.checkout(sourceAt(server.origin), null));
    expect(error.message).toContain('took too long');
    await left.promise;
  });

  test('that stops in the middle of a fetch leaves no half mirror', async () => {
    await using at = await provider();
    await using origin = await localRepository();
    const commit = await origin.commit({ a: '1' });
    let broken = true;
    await using server = gitServer({
      root: path.dirname(origin.path),
      answer: async (request) => {
        if (!broken || request.method !== 'POST') return undefined;
        const isFetch = (await request.clone().text()).includes('command=fetch');
        return isFetch ? new Response('0', { status: 500 }) : undefined;
      },
    });
    const error = await failureOf(at.git.checkout(sourceAt(server.origin), null));
    expect(error).toBeInstanceOf(RepositoryUnavailable);
    expect(await readdir(path.join(at.dataDir, 'mirrors'))).toEqual([]);
    broken = false;
    expect((await at.git.checkout(sourceAt(server.origin), null)).commit).toBe(commit);
  });
});

test('a plain http URL that the settings do not allow is not asked at all', async () => {
  await using at = await provider({ allowsPlainHttp: () => false });
  await using server = gitServer({ root: at.dataDir });
  await expect(at.git.discover(`${server.origin}/demo`, token)).rejects.toMatchObject({ kind: 'invalid' });
  expect(await failureOf(at.git.checkout(sourceAt(server.origin), token))).toBeInstanceOf(RepositoryUnavailable);
  expect(server.seen).toEqual([]);
});

describe("the proxy of the server's own network", () => {
  test('is used with its credentials, which stay out of arguments, files and failures', async () => {
    const credentials = 'me:hush%40hush';
    await using origin = await localRepository();
    const commit = await origin.commit({ a: '1' });
    await using server = gitServer({ root: path.dirname(origin.path) });
    const authorization = `Basic ${Buffer.from('me:hush@hush').toString('base64')}`;
    await using proxy = await connectProxy({
      portOf: (target) => (target === 'git.test:80' ? Number(new URL(server.origin).port) : undefined),
      authorization,
    });
    const asked: string[] = [];
    await using at = await provider({
      allowsPlainHttp: () => true,
      proxyFor(url) {
        asked.push(url);
        return proxy.url.replace('://', `://${credentials}@`);
      },
    });
    const checkout = await at.git.checkout(sourceAt('http://git.test'), null);
    expect(checkout.commit).toBe(commit);
    expect(new Set(asked)).toEqual(new Set(['http://git.test/demo']));
    expect(proxy.asked.length).toBeGreaterThan(1);
    expect(new Set(proxy.credentials)).toEqual(new Set([authorization]));
    const files = await readdir(at.dataDir, { recursive: true, withFileTypes: true });
    for (const file of files.filter((entry) => entry.isFile())) {
      expect((await readFile(path.join(file.parentPath, file.name))).includes('hush')).toBe(false);
    }
    const failure = await failureOf(at.git.checkout(sourceAt('http://elsewhere.test'), null));
    expect(String(failure)).not.toContain('hush');
  });

  test('is passed by where there is none for the URL', async () => {
    await using at = await provider({ proxyFor: () => null });
    await using origin = await localRepository();
    const commit = await origin.commit({ a: '1' });
    await using server = gitServer({ root: path.dirname(origin.path) });
    expect((await at.git.checkout(sourceAt(server.origin), null)).commit).toBe(commit);
  });
});
