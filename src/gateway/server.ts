import { chmod, lstat, rm } from 'node:fs/promises';
import { type Clock, systemClock } from '../kernel/clock.ts';
import type { Log } from '../kernel/log.ts';
import { protocolError } from './answers.ts';
import { exchange } from './exchange.ts';
import type { Gateway, GatewayRun, GatewaySession, ModelProvider } from './gateway.ts';
import { maxRequestBytes } from './limits.ts';
import { responsesUrl } from './providers.ts';
import { createRecorder } from './record.ts';

/** The longest path that fits a socket address with its closing zero, in bytes. */
const maxSocketPathBytes = 107;

export interface GatewayOptions {
  /** Where each provider's API is, with or without the version. */
  readonly baseUrls: Readonly<Record<ModelProvider, string>>;
  /** The proxy through which a URL is reached, credentials included, or null for the direct way; none unless given. */
  proxyFor?(url: string): string | null;
  readonly log: Log;
  readonly clock?: Clock;
  /** What a provider sees as the run's cache key: a keyed hash, for the id itself is nobody's business. */
  cacheKey(runId: string): string;
}

/**
 * A model may think for minutes without a byte: the run's own limit ends it, not an idle connection. For the server as
 * a whole, because `server.timeout(request, 0)` holds only until a stream's first piece. Bun takes this for Unix
 * sockets too, its types know it for ports only.
 */
const neverIdle: object = { idleTimeout: 0 };

/** The gateway on Unix sockets, one server per run: the socket is the run's identity, so none is ever asked for. */
export function createGateway(options: GatewayOptions): Gateway {
  const sessions = new Set<GatewaySession>();
  return {
    async open(run) {
      const session = await openSession(run, options, () => sessions.delete(session));
      sessions.add(session);
      return session;
    },
    async close() {
      await Promise.all([...sessions].map((session) => session.close()));
    },
  };
}

async function openSession(run: GatewayRun, options: GatewayOptions, closed: () => void): Promise<GatewaySession> {
  await makeWay(run.socketPath);
  const upstreamUrl = responsesUrl(run.provider, options.baseUrls[run.provider]);
  const recorder = createRecorder();
  const closing = new AbortController();
  const underWay = new Set<Promise<unknown>>();
  const track = (work: Promise<unknown>) => {
    underWay.add(work);
    const done = () => underWay.delete(work);
    work.then(done, done);
  };
  const context = {
    run,
    recorder,
    log: options.log,
    clock: options.clock ?? systemClock,
    cacheKey: options.cacheKey(run.runId),
    closing: closing.signal,
    track,
  };

  const answer = async (request: Request): Promise<Response> => {
    if (closing.signal.aborted) return protocolError(503, 'gateway_closed', 'The run is ending.', { retry: false });
    const path = new URL(request.url).pathname.replace(/^\/v1(?=\/)/, '');
    if (request.method === 'GET' && path === '/models') return models(run);
    if (request.method !== 'POST' || path !== '/responses') {
      return protocolError(404, 'unknown_url', 'The model gateway has no such path.', { retry: false });
    }
    if (upstreamUrl === null) {
      recorder.ended(recorder.begin(), 'unavailable', null);
      const message = `This harness cannot use models of the provider ${run.provider} yet.`;
      return protocolError(400, 'unsupported_provider', message, { retry: false });
    }
    return exchange(request, { ...context, upstreamUrl, proxyUrl: options.proxyFor?.(upstreamUrl) ?? null });
  };

  const server = Bun.serve({
    unix: run.socketPath,
    ...neverIdle,
    // The exchange refuses earlier and in the protocol's form; this only bounds what is read of a larger body.
    maxRequestBodySize: maxRequestBytes * 2,
    async fetch(request) {
      const work = answer(request);
      track(work);
      return work.catch((error: unknown) => {
        options.log.error('The model gateway failed', error, { runId: run.runId });
        return protocolError(500, 'gateway_error', 'The model gateway failed.');
      });
    },
  });
  // The sandbox's user is another one than ours.
  await chmod(run.socketPath, 0o666);

  let close: Promise<void> | undefined;
  const shut = async () => {
    closing.abort();
    // Settling is tracked while requests end, so the set is emptied until nothing new has come.
    while (underWay.size > 0) await Promise.allSettled(underWay);
    await server.stop(true);
    await rm(run.socketPath, { force: true });
    closed();
  };
  return {
    record: () => recorder.snapshot(),
    close() {
      close ??= shut();
      return close;
    },
  };
}

/** Some harnesses ask what there is: the run's model, and nothing else. */
const models = (run: GatewayRun): Response =>
  Response.json({ object: 'list', data: [{ id: run.model, object: 'model', created: 0, owned_by: run.provider }] });

/** Removes the socket that an earlier server left behind. Refuses a path that is too long, or that is another file. */
async function makeWay(socketPath: string): Promise<void> {
  const bytes = Buffer.byteLength(socketPath);
  if (bytes > maxSocketPathBytes) {
    throw new Error(
      `The model gateway's socket path has ${bytes} bytes, more than ${maxSocketPathBytes}: use a shorter data directory`,
    );
  }
  const found = await lstat(socketPath).catch(() => null);
  if (found === null) return;
  if (!found.isSocket()) throw new Error('The path of the model gateway holds a file that is not a socket');
  await rm(socketPath, { force: true });
}
