import type Docker from 'dockerode';
import type { Log } from '../kernel/log.ts';
import { checkRunId, lookInside } from './docker-check.ts';
import {
  agentContainer,
  caFile,
  containerName,
  type DoorVolume,
  doorContainer,
  inspectContainer,
  labelOf,
  volumeName,
} from './docker-container.ts';
import { answerMs, asFailure, ask as askFor, imageMissing, isGoneOrDone, openEngine } from './docker-engine.ts';
import { tarFor } from './docker-files.ts';
import { dockerProcess } from './docker-process.ts';
import { demultiplex } from './docker-stream.ts';
import {
  type InspectResult,
  type InspectTask,
  type Leftover,
  maxOutputBytes,
  type Sandbox,
  SandboxFailure,
  type SandboxFile,
  type SandboxProcess,
  type SandboxSpec,
} from './sandbox.ts';

export interface DockerSandboxOptions {
  /** As DOCKER_HOST; null for the engine's usual socket. */
  readonly dockerHost: string | null;
  readonly image: string;
  /** Tells the containers of several installations on one engine apart. */
  readonly installation: string;
  /** Where the sockets of the doors are when the server is itself in a container; null on the engine's machine. */
  readonly doorVolume?: DoorVolume | null;
  readonly log: Log;
  /** What one turn may print, `maxOutputBytes` of the port unless a test says less. */
  readonly maxOutputBytes?: number;
  /** An engine that does not answer a question for so many milliseconds is taken to be gone; 60 s unless given. */
  readonly answerMs?: number;
}

/** Sandboxes on a Docker engine. */
export function dockerSandbox(options: DockerSandboxOptions): Sandbox {
  const { installation, log } = options;
  const engine = openEngine(options.dockerHost);
  const place = { installation, image: options.image, doorVolume: options.doorVolume ?? null };
  const closing = new AbortController();
  const ask = <T>(work: Promise<T>, timeoutMs: number = options.answerMs ?? answerMs) => askFor(work, timeoutMs);

  /** Runs engine calls one after another and logs what the engine says when it refuses: callers get a sentence. */
  async function withEngine<T>(what: string, work: (docker: Docker) => Promise<T>): Promise<T> {
    try {
      return await work(await engine());
    } catch (error) {
      const failure = asFailure(error);
      if (failure.reason === 'failed')
        log.warn('the engine refused', { what, reason: String(failure.cause ?? failure) });
      throw failure;
    }
  }

  const filter = (labels: readonly string[]) => ({ label: [`${labelOf.installation}=${installation}`, ...labels] });

  const containersOf = (docker: Docker, labels: readonly string[]) =>
    ask(docker.listContainers({ all: true, filters: filter(labels) }));

  async function removeContainer(docker: Docker, nameOrId: string): Promise<void> {
    try {
      await ask(docker.getContainer(nameOrId).remove({ force: true }));
    } catch (error) {
      if (!isGoneOrDone((error as Error).cause)) throw error;
    }
  }

  const removeTurn = (docker: Docker, runId: string, turn: number) =>
    Promise.all(
      // The agent first: it must not see its door go away.
      (['agent', 'door'] as const).map((role) =>
        removeContainer(docker, containerName(installation, runId, turn, role)),
      ),
    ).then(() => {});

  async function makeVolumes(docker: Docker, runId: string): Promise<void> {
    await Promise.all(
      (['workspace', 'state'] as const).map((part) =>
        ask(
          docker.createVolume({
            Name: volumeName(installation, runId, part),
            Labels: { [labelOf.installation]: installation, [labelOf.run]: runId },
          }),
        ),
      ),
    );
  }

  /** Names are taken where an earlier start of the turn died in the middle. */
  async function create(docker: Docker, container: Docker.ContainerCreateOptions): Promise<Docker.Container> {
    try {
      return await ask(docker.createContainer(container));
    } catch (error) {
      const { statusCode } = ((error as Error).cause ?? {}) as { statusCode?: unknown };
      if (statusCode !== 409 || container.name === undefined) throw error;
      await removeContainer(docker, container.name);
      return ask(docker.createContainer(container));
    }
  }

  async function fill(container: Docker.Container, spec: SandboxSpec): Promise<void> {
    const files: SandboxFile[] = [...spec.files, { path: caFile, content: spec.caCertificate }];
    for (const root of ['/state', '/workspace']) {
      const below = (item: { path: string }) => item.path === root || item.path.startsWith(`${root}/`);
      const [ofRoot, archives] = [files.filter(below), spec.archives.filter(below)];
      if (ofRoot.length + archives.length === 0) continue;
      const tar = tarFor(root, ofRoot, archives);
      const broken = Promise.withResolvers<never>();
      tar.once('error', broken.reject);
      try {
        // A large repository takes as long as it takes; an engine that is gone ends the stream.
        await Promise.race([ask(container.putArchive(tar, { path: root }), 30 * 60_000), broken.promise]);
      } finally {
        tar.destroy();
      }
    }
  }

  const processOf = (docker: Docker, container: Docker.Container, runId: string, turn: number) =>
    dockerProcess(container, {
      maxOutputBytes: options.maxOutputBytes ?? maxOutputBytes,
      closing: closing.signal,
      remove: () => withEngine('remove', () => removeTurn(docker, runId, turn)),
    });

  async function start(spec: SandboxSpec): Promise<SandboxProcess> {
    return withEngine('start', async (docker) => {
      try {
        const [door] = await Promise.all([create(docker, doorContainer(place, spec)), makeVolumes(docker, spec.runId)]);
        const opening = ask(door.start());
        opening.catch(() => {});
        const agent = await create(docker, agentContainer(place, spec));
        await Promise.all([opening, fill(agent, spec)]);
        await ask(agent.start());
        return processOf(docker, agent, spec.runId, spec.turn);
      } catch (error) {
        await removeTurn(docker, spec.runId, spec.turn).catch(() => {});
        // Half a workspace would be taken for a whole one.
        if (spec.archives.length > 0) await discard(spec.runId).catch(() => {});
        throw error;
      }
    });
  }

  async function discard(runId: string): Promise<void> {
    await withEngine('discard', async (docker) => {
      const containers = await containersOf(docker, [`${labelOf.run}=${runId}`]);
      await Promise.all(containers.map(({ Id }) => removeContainer(docker, Id)));
      for (const part of ['workspace', 'state'] as const) {
        try {
          await ask(docker.getVolume(volumeName(installation, runId, part)).remove({ force: true }));
        } catch (error) {
          if (((error as Error).cause as { statusCode?: unknown } | undefined)?.statusCode !== 404) throw error;
        }
      }
    });
  }

  async function adopt(runId: string, turn: number): Promise<SandboxProcess | undefined> {
    return withEngine('adopt', async (docker) => {
      const agent = docker.getContainer(containerName(installation, runId, turn, 'agent'));
      try {
        const { State, Id } = await ask(agent.inspect());
        if (State.Status === 'created') return undefined;
        return processOf(docker, docker.getContainer(Id), runId, turn);
      } catch (error) {
        if (isGoneOrDone((error as Error).cause)) return undefined;
        throw error;
      }
    });
  }

  async function inspect(task: InspectTask): Promise<InspectResult> {
    return withEngine('inspect', async (docker) => {
      const container = await ask(docker.createContainer(inspectContainer(place, task.runId, task)));
      try {
        const output = await ask(container.attach({ stream: true, stdout: true, stderr: false }));
        await ask(container.start());
        const reading = firstBytes(output, task.maxOutputBytes);
        reading.catch(() => {});
        const ended = container.wait({ condition: 'not-running' });
        const { StatusCode } = (await ask(ended, task.timeoutMs)) as { StatusCode: number };
        return { code: StatusCode, ...(await ask(reading)) };
      } catch (error) {
        if (error instanceof SandboxFailure && error.cause === undefined) {
          throw new SandboxFailure('failed', 'A command in the sandbox took too long.', error);
        }
        throw error;
      } finally {
        await removeContainer(docker, container.id).catch(() => {});
      }
    });
  }

  return {
    start,
    adopt,
    inspect,

    async check() {
      try {
        return await withEngine('check', async (docker) => {
          const { Version } = await ask(docker.version(), 10_000);
          await ask(docker.getImage(options.image).inspect());
          return { ok: true as const, engine: `Docker ${Version}` };
        });
      } catch (error) {
        const failure = asFailure(error);
        const absent = ((failure.cause ?? {}) as { statusCode?: unknown }).statusCode === 404;
        return { ok: false, reason: absent ? imageMissing : failure.message };
      }
    },

    async lookInside(look) {
      const networks = await withEngine('networks', (docker) => ask(docker.listNetworks()));
      const gateways = networks.flatMap(({ IPAM }) => (IPAM?.Config ?? []).flatMap(gatewayOf));
      return lookInside({ start, discard }, look, { gateways });
    },

    async hasVolumes(runId) {
      return withEngine('volumes', async (docker) => {
        const { Volumes } = await ask(
          docker.listVolumes({ filters: JSON.stringify(filter([`${labelOf.run}=${runId}`])) as never }),
        );
        return (Volumes ?? []).length === 2;
      });
    },

    discard,

    async leftovers() {
      return withEngine('leftovers', async (docker) => {
        const [containers, { Volumes }] = await Promise.all([
          containersOf(docker, []),
          ask(docker.listVolumes({ filters: JSON.stringify(filter([])) as never })),
        ]);
        const found = new Map<string, Leftover>();
        const note = (runId: string | undefined, what: Partial<Leftover>) => {
          // A look inside removes its own, or the next one does.
          if (runId === undefined || runId === checkRunId) return;
          const known = found.get(runId) ?? { runId, hasContainers: false, hasVolumes: false };
          found.set(runId, { ...known, ...what });
        };
        for (const { Labels } of containers) note(Labels[labelOf.run], { hasContainers: true });
        for (const { Labels } of Volumes ?? []) note(Labels?.[labelOf.run], { hasVolumes: true });
        return [...found.values()];
      });
    },

    async close() {
      closing.abort(new SandboxFailure('unavailable', 'The server has stopped.'));
    },
  };
}

/** The engine's own address in a network: where it is not told, the first one, which is what engines take. */
function gatewayOf({ Gateway, Subnet }: { Gateway?: string | undefined; Subnet?: string | undefined }): string[] {
  if (Gateway) return [Gateway];
  const first = /^(\d+\.\d+\.\d+\.)(\d+)\//.exec(Subnet ?? '');
  return first ? [`${first[1]}${Number(first[2]) + 1}`] : [];
}

/** Reads a command's output to its end and keeps the beginning. */
async function firstBytes(stream: NodeJS.ReadableStream, most: number): Promise<{ output: Uint8Array; cut: boolean }> {
  const parts: Uint8Array[] = [];
  let kept = 0;
  let cut = false;
  for await (const part of demultiplex(stream as AsyncIterable<Uint8Array>, 'stdout')) {
    cut ||= part.length > most - kept;
    if (kept < most) parts.push(part.slice(0, most - kept));
    kept = Math.min(most, kept + part.length);
  }
  return { output: Buffer.concat(parts), cut };
}
