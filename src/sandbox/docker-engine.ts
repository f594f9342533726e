import { Agent } from 'node:http';
import type Docker from 'dockerode';
import { SandboxFailure } from './sandbox.ts';

/** An engine that does not answer for so long is taken to be gone. */
export const answerMs = 60_000;

/** The engine's client, loaded on first use: it costs the start of the server 30 ms. */
export type Engine = () => Promise<Docker>;

/** A client of the engine that `dockerHost` (as DOCKER_HOST) names, null for the usual socket. */
export function openEngine(dockerHost: string | null): Engine {
  let client: Promise<Docker> | undefined;
  return () => {
    client ??= import('dockerode').then(({ default: Client }) => {
      // A connection that is kept would be dead after a restart of the engine, and the next call would fail on it.
      const options = { ...addressOf(dockerHost), agent: new Agent({ keepAlive: false }) };
      return new Client(options as Docker.DockerOptions);
    });
    return client;
  };
}

function addressOf(dockerHost: string | null): Docker.DockerOptions {
  if (dockerHost === null) return { socketPath: '/var/run/docker.sock' };
  const url = URL.parse(dockerHost);
  if (url?.protocol === 'unix:') return { socketPath: dockerHost.slice('unix://'.length) };
  if (url?.protocol === 'tcp:' || url?.protocol === 'http:') {
    return { protocol: 'http', host: url.hostname, port: Number(url.port || 2375) };
  }
  throw new SandboxFailure('unavailable', 'DOCKER_HOST must be unix:///PATH or tcp://HOST:PORT.');
}

/** Asks the engine, for a bounded time, and turns what it answers wrongly into a `SandboxFailure`. */
export async function ask<T>(work: Promise<T>, timeoutMs: number = answerMs): Promise<T> {
  const late = Promise.withResolvers<never>();
  const timer = setTimeout(() => late.reject(new SandboxFailure('unavailable', silent)), timeoutMs);
  try {
    return await Promise.race([work, late.promise]);
  } catch (error) {
    throw asFailure(error);
  } finally {
    clearTimeout(timer);
    work.catch(() => {});
  }
}

const silent = 'The Docker engine does not answer. Restart it.';
const unreachable = 'The Docker engine cannot be reached. Start Docker, or set DOCKER_HOST to where it listens.';
const unreachableCodes = new Set([
  'ECONNREFUSED',
  'ENOENT',
  'EPIPE',
  'ECONNRESET',
  'ECONNABORTED',
  'ETIMEDOUT',
  'ENOTFOUND',
  'FailedToOpenSocket',
  'ConnectionClosed',
  'ConnectionRefused',
]);

export function asFailure(error: unknown): SandboxFailure {
  if (error instanceof SandboxFailure) return error;
  const { code, statusCode, message = '' } = error as { code?: unknown; statusCode?: unknown; message?: string };
  if (code === 'EACCES' || code === 'EPERM') {
    return new SandboxFailure(
      'unavailable',
      'The Docker engine refuses this user. Run the server as a member of the group docker.',
      error,
    );
  }
  if (/no space left on device/i.test(message)) {
    return new SandboxFailure('out_of_disk', 'The disk of the Docker engine is full. Free space there.', error);
  }
  if (/no such image/i.test(message)) return new SandboxFailure('image_missing', imageMissing, error);
  if (statusCode === undefined && (unreachableCodes.has(String(code)) || /socket|connect/i.test(message))) {
    return new SandboxFailure('unavailable', unreachable, error);
  }
  return new SandboxFailure(
    'failed',
    "The Docker engine refused to run the sandbox. The server's log tells why.",
    error,
  );
}

export const imageMissing = 'The sandbox image is missing. Build it with `slipway sandbox build`.';

/** True for the engine's answer that there is no such thing, or that it is that way already. */
export function isGoneOrDone(error: unknown): boolean {
  const { statusCode } = error as { statusCode?: unknown };
  return statusCode === 404 || statusCode === 304 || statusCode === 409;
}
