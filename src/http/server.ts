import { Elysia } from 'elysia';
import { absent, Fault } from '../kernel/fault.ts';
import { newId } from '../kernel/id.ts';
import type { Log } from '../kernel/log.ts';
import { failureResponse } from './failure.ts';
import { type Authenticate, apiPrefix, bearerOf, isGuarded, pathOf } from './gate.ts';
import { type Address, type Listening, listen } from './listen.ts';
import { answering, type Edge, type Handler, mountOperation, mountPage, type Page } from './mount.ts';
import type { AnyOperation } from './operation.ts';

export type { Page } from './mount.ts';

export interface ServerOptions {
  readonly operations: readonly AnyOperation[];
  readonly authenticate: Authenticate;
  readonly pages?: readonly Page[];
  readonly log: Log;
}

export interface Server {
  /** Answers one request without a socket. Never rejects. */
  fetch(request: Request): Promise<Response>;
  /** Rejects with a `Fault` that names the address and the setting where it cannot be had. Once per server. */
  listen(at: Address): Promise<Listening>;
}

/** The HTTP edge: the operations below `/api/v1`, each behind a bearer token, and the pages beside them. */
export function createServer({ operations, authenticate, pages = [], log }: ServerOptions): Server {
  const stopping = new AbortController();
  let keepOpen: Edge['keepOpen'] = () => undefined;
  const edge: Edge = { authenticate, log, stopping: stopping.signal, keepOpen: (request) => keepOpen(request) };
  const routes = [
    ...operations.map((op) => ({
      method: op.method,
      path: `${apiPrefix}${op.path}`,
      handler: mountOperation(op, edge),
    })),
    ...pages.map((page) => ({ method: page.method, path: page.path, handler: mountPage(page, edge) })),
  ];
  const misplaced = pages.find((page) => isGuarded(page.path));
  if (misplaced) throw new Error(`The page ${misplaced.path} would stand unguarded below ${apiPrefix}`);

  const app = new Elysia({ strictPath: true, normalize: false, nativeStaticResponse: false });
  // Elysia reads the source of each handler to see what to prepare: with just these two names it parses nothing.
  const mount = (method: string, path: string, handler: Handler) =>
    app.route(method, path, ({ request, params }) => handler({ request, params }), { parse: 'none' });
  for (const { method, path, handler } of routes) mount(method, path, handler);
  app.all('/*', ({ request }) => notFound(request, routes, edge), { parse: 'none' });
  // Handlers answer their own failures; this is for what goes wrong before one is reached.
  app.onError(({ error }) => failureResponse(error, { requestId: newId(), what: 'router' }, log));
  app.compile();

  return {
    fetch: async (request) => app.fetch(request),
    async listen(at) {
      const listening = listen(app.fetch, at, () => stopping.abort());
      keepOpen = listening.keepOpen;
      return listening;
    },
  };
}

interface Route {
  readonly method: string;
  readonly path: string;
}

/** The answer where no route fits: 401 below the guarded prefix, then 405 on a path that other methods have, or 404. */
function notFound(request: Request, routes: readonly Route[], edge: Edge): Promise<Response> {
  return answering('router', request, edge, async (requestId) => {
    const path = pathOf(request.url);
    if (isGuarded(path)) await edge.authenticate(bearerOf(request));
    const methods = new Set(routes.filter((route) => matches(route.path, path)).map((route) => route.method));
    if (methods.size === 0) throw absent('not_found', 'There is nothing at this path');
    if (methods.has('GET')) methods.add('HEAD');
    const allow = [...methods].toSorted().join(', ');
    const fault = new Fault('method_not_allowed', 'method_not_allowed', `This path takes ${allow}`);
    return failureResponse(fault, { requestId, what: 'router' }, edge.log, { allow });
  });
}

/** Whether a path fits a pattern with `:name` segments. Only for answers that are failures already. */
function matches(pattern: string, path: string): boolean {
  const wanted = pattern.split('/');
  const given = path.split('/');
  if (wanted.length !== given.length) return false;
  return wanted.every((part, position) => (part.startsWith(':') ? given[position] !== '' : part === given[position]));
}
