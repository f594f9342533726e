import path from 'node:path';

export interface SeenRequest {
  readonly path: string;
  readonly authorization: string | null;
}

/**
 * Serves the repositories below `root` over git's smart protocol, with git's own CGI program. `token` is asked for as
 * the password of Basic credentials. `answer` may answer a request in its place. With `tls` it is served over https;
 * `hostname` is an address of this machine, 127.0.0.1 unless given.
 */
export function gitServer(options: {
  root: string;
  token?: string;
  hostname?: string;
  tls?: { readonly cert: string; readonly key: string };
  answer?: (request: Request) => Response | undefined | Promise<Response | undefined>;
}) {
  const seen: SeenRequest[] = [];
  const { hostname = '127.0.0.1', tls } = options;
  const server = Bun.serve({
    hostname,
    port: 0,
    ...(tls ? { tls: { cert: tls.cert, key: tls.key } } : {}),
    async fetch(request) {
      const url = new URL(request.url);
      const authorization = request.headers.get('authorization');
      seen.push({ path: url.pathname, authorization });
      const answered = await options.answer?.(request);
      if (answered) return answered;
      const wanted = options.token && `Basic ${Buffer.from(`x-access-token:${options.token}`).toString('base64')}`;
      if (wanted !== undefined && authorization !== wanted) {
        return new Response('no', { status: 401, headers: { 'www-authenticate': 'Basic realm="git"' } });
      }
      return backend(options.root, request, url);
    },
  });
  return {
    origin: `${tls ? 'https' : 'http'}://${hostname}:${server.port}`,
    seen,
    [Symbol.asyncDispose]: () => server.stop(true),
  };
}

async function backend(root: string, request: Request, url: URL): Promise<Response> {
  const child = Bun.spawn(['git', 'http-backend'], {
    env: {
      PATH: process.env.PATH ?? '',
      GIT_CONFIG_NOSYSTEM: '1',
      HOME: root,
      GIT_PROJECT_ROOT: root,
      GIT_HTTP_EXPORT_ALL: '1',
      REQUEST_METHOD: request.method,
      PATH_INFO: decodeURIComponent(url.pathname),
      PATH_TRANSLATED: path.join(root, decodeURIComponent(url.pathname)),
      QUERY_STRING: url.search.slice(1),
      CONTENT_TYPE: request.headers.get('content-type') ?? '',
      HTTP_CONTENT_ENCODING: request.headers.get('content-encoding') ?? '',
      GIT_PROTOCOL: request.headers.get('git-protocol') ?? '',
    },
    stdin: new Uint8Array(await request.arrayBuffer()),
    stdout: 'pipe',
    stderr: 'ignore',
  });
  const output = Buffer.from(await new Response(child.stdout).arrayBuffer());
  const end = output.indexOf('\r\n\r\n');
  const headers = new Headers();
  let status = 200;
  for (const line of output.subarray(0, end).toString('latin1').split('\r\n')) {
    const [name = '', value = ''] = line.split(/: (.*)/s);
    if (name.toLowerCase() === 'status') status = Number.parseInt(value, 10);
    else headers.set(name, value);
  }
  return new Response(output.subarray(end + 4), { status, headers });
}
