import { Fault } from '../kernel/fault.ts';

export interface Address {
  readonly host: string;
  /** 0 takes any free port. */
  readonly port: number;
}

export interface Listening extends Address {
  /** Origin, without a trailing slash. */
  readonly url: string;
  /** Ends live streams, lets requests under way finish for at most `graceMs`, then closes what is left. Idempotent. */
  stop(graceMs: number): Promise<void>;
}

/** A connection that is silent for so long is closed, streams excepted. */
const idleSeconds = 60;

/**
 * Listens, and answers when requests are taken. `endStreams` is called once, when the server stops: a stream that
 * stays open would keep it from stopping. Throws a `Fault` where the address cannot be had.
 */
export function listen(
  fetch: (request: Request) => Response | Promise<Response>,
  at: Address,
  endStreams: () => void,
): Listening & { keepOpen(request: Request): void } {
  const server = serve(fetch, at);
  const port = server.port ?? at.port;
  const name = at.host.includes(':') ? `[${at.host}]` : at.host;
  let stopped: Promise<void> | undefined;

  async function stop(graceMs: number): Promise<void> {
    endStreams();
    const late = Promise.withResolvers<void>();
    const timer = setTimeout(late.resolve, graceMs);
    await Promise.race([server.stop(), late.promise]);
    clearTimeout(timer);
    await server.stop(true);
  }

  return {
    url: `http://${name}:${port}`,
    host: at.host,
    port,
    keepOpen: (request) => server.timeout(request, 0),
    stop(graceMs) {
      stopped ??= stop(graceMs);
      return stopped;
    },
  };
}

function serve(fetch: (request: Request) => Response | Promise<Response>, at: Address) {
  try {
    return Bun.serve({
      hostname: at.host,
      port: at.port,
      idleTimeout: idleSeconds,
      // Bodies are counted where they are read; Bun's own limit would answer 413 without a word.
      maxRequestBodySize: Number.MAX_SAFE_INTEGER,
      // Outside development Bun would otherwise share a port that is taken, without a word.
      reusePort: false,
      // Never Bun's error page: it shows source and stack.
      development: false,
      fetch,
    });
  } catch (cause) {
    const code = cause instanceof Error && 'code' in cause ? cause.code : undefined;
    const why =
      code === 'EADDRINUSE'
        ? 'is in use by another program'
        : code === 'EACCES'
          ? 'needs rights that this user does not have'
          : 'cannot be listened on';
    throw new Fault(
      'unavailable',
      'address_unavailable',
      `The address ${at.host}:${at.port} ${why}. Choose another one with --listen HOST:PORT or SLIPWAY_LISTEN.`,
      { cause },
    );
  }
}
