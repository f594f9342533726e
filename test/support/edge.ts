import net from 'node:net';
import { z } from 'zod';
import { eventStream } from '../../src/http/live.ts';
import { type AnyOperation, operation, type Principal, streamOperation } from '../../src/http/operation.ts';
import { createServer, type Page } from '../../src/http/server.ts';
import { absent, conflict, Fault } from '../../src/kernel/fault.ts';
import { jsonLog } from '../../src/kernel/log.ts';

export const goodKey = 'good-key';
/** Sent in the place of every value that must never come back. */
export const marker = 'MARKER-3f9c';

const principal: Principal = {
  tokenId: 't',
  workspaceId: 'w',
  memberId: 'm',
  userId: 'u',
  role: 'owner',
};

const Item = z.object({ id: z.string(), name: z.string() });

/** Operations that show each rule of the edge; none of them is a real one. */
export function toyOperations(state: ToyState): AnyOperation[] {
  return [
    operation({
      id: 'get_item',
      summary: 'Read',
      method: 'GET',
      path: '/items/:itemId',
      status: 200,
      params: z.object({ itemId: z.string().max(20) }),
      query: z.object({ page: z.string().regex(/^\d+$/, 'Must be a whole number').transform(Number).default(1) }),
      output: z.object({ item: Item, page: z.int() }),
      async run({ params, query }) {
        if (params.itemId === 'none') throw absent('item_not_found', 'Item not found');
        if (params.itemId === 'bug') throw new Error('internal detail at 10.0.0.7');
        if (params.itemId === 'zod') z.object({ secret: z.literal('x') }).parse({ secret: marker });
        if (params.itemId === 'engine') throw new Fault('unavailable', 'worker_unavailable', 'No worker');
        return { item: { id: params.itemId, name: 'n', hidden: 'hidden-field' } as z.input<typeof Item>, ...query };
      },
    }),
    operation({
      id: 'create_item',
      summary: 'Create',
      method: 'POST',
      path: '/items',
      status: 201,
      query: z.object({ dry: z.enum(['yes', 'no']).optional() }),
      body: z.object({
        name: z.string().trim().min(1).max(50),
        tags: z.array(z.string().max(10)).max(1000).default([]),
        extra: z.record(z.string(), z.unknown()).optional(),
      }),
      output: z.object({ item: Item }),
      async run({ body }) {
        if (body.name === 'taken') throw conflict('name_taken', 'The name is taken');
        return { item: { id: '1', name: body.name } };
      },
    }),
    operation({
      id: 'patch_item',
      summary: 'Change',
      method: 'PATCH',
      path: '/items/:itemId',
      status: 200,
      params: z.object({ itemId: z.string().max(5) }),
      query: z.object({ page: z.string().regex(/^\d+$/).optional() }),
      body: z.object({ name: z.string().optional(), size: z.int().optional() }),
      output: z.object({ changed: z.boolean() }),
      run: async () => ({ changed: true }),
    }),
    operation({
      id: 'start_item',
      summary: 'Start, with a message or without',
      method: 'POST',
      path: '/items/:itemId/start',
      status: 202,
      body: z.object({ message: z.string().optional() }).optional(),
      output: z.object({ message: z.string().nullable() }),
      run: async ({ body }) => ({ message: body?.message ?? null }),
    }),
    operation({
      id: 'wrong_output',
      summary: 'Breaks its own schema',
      method: 'GET',
      path: '/wrong',
      status: 200,
      output: z.object({ size: z.int() }),
      run: async () => ({ size: marker }) as unknown as { size: number },
    }),
    operation({
      id: 'wait',
      summary: 'Waits until it is let go or the caller leaves',
      method: 'GET',
      path: '/wait',
      status: 200,
      output: z.object({ waited: z.boolean() }),
      async run({ signal }) {
        signal.addEventListener('abort', () => state.aborted.resolve());
        state.waiting.resolve();
        await state.letGo.promise;
        return { waited: true };
      },
    }),
    streamOperation({
      id: 'download',
      summary: 'Breaks off',
      method: 'GET',
      path: '/download',
      contentType: 'application/x-ndjson',
      open: async () =>
        new ReadableStream({
          start: (controller) => controller.enqueue(new TextEncoder().encode('{}\n')),
          pull: (controller) => controller.error(new Error('the file broke')),
        }),
    }),
    streamOperation({
      id: 'stream',
      summary: 'Counts',
      method: 'GET',
      path: '/stream/:itemId',
      params: z.object({ itemId: z.string() }),
      contentType: 'text/event-stream',
      async open({ params, signal, headers }) {
        if (params.itemId === 'none') throw absent('item_not_found', 'Item not found');
        return eventStream(state.source(Number(headers.get('last-event-id') ?? 0), signal, params.itemId), {
          heartbeatMs: 15_000,
          signal,
        });
      },
    }),
  ];
}

export class ToyState {
  readonly waiting = Promise.withResolvers<void>();
  readonly letGo = Promise.withResolvers<void>();
  readonly aborted = Promise.withResolvers<void>();
  readonly left = Promise.withResolvers<void>();
  /** How many events the stream was asked for. */
  pulled = 0;

  async *source(after: number, signal: AbortSignal, kind: string) {
    try {
      for (let id = after + 1; ; id++) {
        this.pulled = id;
        if (kind === 'broken' && id === 3) throw new Error('the source broke');
        if (kind === 'three' && id > 3) return;
        if (kind === 'quiet' && id > 1) await new Promise((resolve) => signal.addEventListener('abort', resolve));
        if (signal.aborted) return;
        yield { id, event: 'count', data: { id, text: kind === 'flood' ? 'x'.repeat(65_536) : 'a\nb' } };
      }
    } finally {
      this.left.resolve();
    }
  }
}

export const pages: Page[] = [
  {
    method: 'GET',
    path: '/setup',
    handle: async () => new Response('<p>set up</p>', { headers: { 'content-type': 'text/html' } }),
  },
  { method: 'POST', path: '/setup', handle: async (request) => new Response(`${(await request.text()).length}`) },
  { method: 'GET', path: '/away', handle: async () => Response.redirect('http://localhost/setup', 302) },
];

/** A listening edge over the toy operations; `await using` stops it. `log` is every line that it wrote. */
export async function toyEdge() {
  const state = new ToyState();
  const lines: string[] = [];
  const authenticated: string[] = [];
  const asked = Promise.withResolvers<void>();
  const server = createServer({
    operations: toyOperations(state),
    pages,
    log: jsonLog((line) => lines.push(line)),
    async authenticate(bearer) {
      authenticated.push(bearer);
      asked.resolve();
      if (bearer === goodKey) return principal;
      throw new Fault('unauthenticated', 'unauthorized', 'The API key is unknown');
    },
  });
  const listening = await server.listen({ host: '127.0.0.1', port: 0 });
  return {
    state,
    server,
    listening,
    authenticated,
    asked: asked.promise,
    log: () => lines.join('\n'),
    call(path: string, init: RequestInit & { key?: string | null } = {}) {
      const headers = new Headers(init.headers);
      if (init.key !== null) headers.set('authorization', `Bearer ${init.key ?? goodKey}`);
      return fetch(`${listening.url}${path}`, { redirect: 'manual', ...init, headers });
    },
    send(path: string, body: object | string, init: RequestInit = {}) {
      const headers = { 'content-type': 'application/json', ...(init.headers as Record<string, string>) };
      const text = typeof body === 'string' ? body : JSON.stringify(body);
      return this.call(path, { method: 'POST', ...init, headers, body: text });
    },
    async [Symbol.asyncDispose]() {
      state.letGo.resolve();
      await listening.stop(0);
    },
  };
}
export type ToyEdge = Awaited<ReturnType<typeof toyEdge>>;

/** A connection without any HTTP client in between: what is written is what the server gets. */
export function rawConnection(port: number) {
  const socket = net.connect(port, '127.0.0.1');
  let received = '';
  const closed = Promise.withResolvers<void>();
  const watchers = new Set<() => void>();
  const notify = () => {
    for (const watcher of watchers) watcher();
  };
  socket.on('data', (chunk) => {
    received += chunk.toString('latin1');
    notify();
  });
  socket.on('error', () => undefined);
  socket.on('close', () => {
    closed.resolve();
    notify();
  });
  return {
    socket,
    closed: closed.promise,
    received: () => received,
    /** Resolves when what came in holds `text`; rejects when the connection ends before. */
    until(text: string | RegExp): Promise<string> {
      const { promise, resolve, reject } = Promise.withResolvers<string>();
      const look = () => {
        if (typeof text === 'string' ? received.includes(text) : text.test(received)) resolve(received);
        else if (socket.destroyed) reject(new Error(`The connection ended with: ${received}`));
        else return;
        watchers.delete(look);
      };
      watchers.add(look);
      look();
      return promise;
    },
    [Symbol.dispose]: () => socket.destroy(),
  };
}
