import { expect, test } from 'bun:test';
import { realpath } from 'node:fs/promises';
import path from 'node:path';
import type Docker from 'dockerode';
import { demultiplex } from '../../src/sandbox/docker-stream.ts';
import { imageReference } from '../../src/sandbox/image.ts';
import { managementApi, outputsOf } from '../support/docker-api.ts';
import { containerOf, engine, removeAllOf, withoutContainers } from '../support/docker-engine.ts';
import { startModelStage } from '../support/docker-model.ts';
import { testMs } from '../support/docker-service.ts';
import { localRepository, temporaryDirectory } from '../support/git.ts';
import { echoOrigin } from '../support/tunnel.ts';

const root = path.join(import.meta.dir, '../..');
const name = `slipway-test-server-${crypto.randomUUID().slice(0, 8)}`;
const modelKey = 'sk-model-0123456789';
const token = 'the-value-of-the-token-0123456789';
/** An address of this machine that a sandbox does not take for its own. */
const host = '127.0.0.2';

/** The server, from its source, in a container whose data directory the engine's machine does not have. */
async function startServer(repository: string, env: Record<string, string>, binds: readonly string[]) {
  const modules = await realpath(path.join(root, 'node_modules'));
  const bun = await realpath(path.join(root, 'node_modules/.bin/bun'));
  const slipway = `'${bun}' src/main.ts`;
  const script = [
    'set -e',
    `${slipway} init --owner-email owner@example.test --json`,
    `${slipway} integration connect git --url 'file://${repository}' --json`,
    `exec ${slipway} serve --listen 127.0.0.1:0`,
  ].join('\n');
  const container = await engine.createContainer({
    name,
    Image: imageReference(),
    Entrypoint: ['/bin/sh', '-c'],
    Cmd: [script],
    User: '0:0',
    WorkingDir: root,
    Env: Object.entries({ HOME: '/tmp', SLIPWAY_DATA_DIR: '/data', ...env }).map(([key, value]) => `${key}=${value}`),
    HostConfig: {
      NetworkMode: 'host',
      Binds: [
        '/var/run/docker.sock:/var/run/docker.sock',
        `${root}:${root}:ro`,
        ...(modules.startsWith(`${root}/`) ? [] : [`${modules}:${modules}:ro`]),
        `${repository}:${repository}:ro`,
        `${name}-data:/data`,
        `${name}-doors:/run/slipway`,
        ...binds,
      ],
    },
  });
  await container.start();
  return { container, ...(await spoken(container)) };
}

/** What the commands in the container printed. */
async function spoken(container: Docker.Container) {
  const log = (await container.logs({
    follow: true,
    stdout: true,
    stderr: true,
  })) as unknown as AsyncIterable<Uint8Array>;
  const decoder = new TextDecoder();
  let text = '';
  for await (const piece of demultiplex(log, 'stdout')) {
    text += decoder.decode(piece, { stream: true });
    const workspaceKey = /"workspaceKey":"(\w+[^"]*)"/.exec(text)?.[1];
    const repositoryId = /"repositories":\[\{"id":"([^"]+)"/.exec(text)?.[1];
    const url = /^Slipway listens on (\S+)$/m.exec(text)?.[1];
    if (workspaceKey && repositoryId && url) return { workspaceKey, repositoryId, url };
  }
  throw new Error(`the server did not come up: ${text}`);
}

test(
  'a server in a container leads its sandboxes out through the volume that it shares with their doors',
  async () => {
    const stage = startModelStage(modelKey);
    await using repository = await localRepository();
    await repository.commit({ 'README.md': '# Demo\n' }, 'Begin');
    await using directory = await temporaryDirectory();
    await using origin = await echoOrigin(host, directory.path);
    let runId = '';
    try {
      const server = await startServer(
        repository.path,
        {
          ...origin.env,
          OPENAI_API_KEY: modelKey,
          OPENAI_BASE_URL: stage.url,
          SLIPWAY_DOOR_VOLUME: `${name}-doors:/run/slipway`,
        },
        [`${directory.path}:${directory.path}:ro`],
      );
      const api = managementApi(server.url, server.workspaceKey);
      const looked = Promise.withResolvers<void>();
      const run = `curl -sS -H "X-Token: $API_TOKEN" https://${host}:${origin.port}/; ls /door /run/slipway`;
      const playing = await stage.add({
        script: { turns: [{ steps: [{ run }], answer: 'Done.' }] },
        async before(number) {
          if (number === 2) await looked.promise;
          return undefined;
        },
      });
      const automationId = await api.automation({
        prompt: playing.prompt,
        repositoryIds: [server.repositoryId],
        workspaceSecretIds: [await api.secret('API_TOKEN', token, [host])],
        egress: { default: 'deny', hosts: [host] },
      });
      runId = await api.start(automationId);
      await api.seen(runId, ({ type }) => type === 'tool_result');
      const [door, agent] = [await containerOf(runId, 'door'), await containerOf(runId, 'agent')];
      const mountsOf = async (container: Docker.Container) =>
        (await container.inspect()).Mounts.map(({ Name, Destination, RW }) => [Name, Destination, RW]);
      expect(await mountsOf(door)).toEqual([[`${name}-doors`, '/door', false]]);
      expect((await mountsOf(agent)).map(([, destination]) => destination).sort()).toEqual(['/state', '/workspace']);
      looked.resolve();
      const finished = await api.finished(runId);
      expect(finished).toMatchObject({ status: 'succeeded', resultSummary: 'Done.' });
      expect(outputsOf(finished)[0]).toStartWith('taken');
      expect(outputsOf(finished)[0]).toContain("cannot access '/door'");
      expect(outputsOf(finished)[0]).not.toContain('.sock');
      expect(origin.tokens).toEqual([token]);
      await withoutContainers(runId);
    } finally {
      const gone = () => {};
      await engine.getContainer(name).remove({ force: true }).catch(gone);
      if (runId !== '') await removeAllOf(runId);
      for (const part of ['data', 'doors'])
        await engine.getVolume(`${name}-${part}`).remove({ force: true }).catch(gone);
      await stage.stop();
    }
  },
  testMs,
);
