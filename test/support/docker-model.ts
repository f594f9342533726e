import { type RehearsalModel, startRehearsalModel } from '../../src/demo/rehearsal.ts';
import type { RehearsalScript } from '../../src/demo/rehearsal-script.ts';

export interface Role {
  readonly script: RehearsalScript;
  /**
   * Called with each request's number, counted from 1, before the script answers it: to wait, or to answer in its
   * place. What it is given is aborted when the other side goes away.
   */
  readonly before?: (number: number, signal: AbortSignal) => Promise<Response | undefined> | Response | undefined;
  /** The only key that the model takes; the server's own unless given. */
  readonly acceptedKey?: string;
}

/** One conversation's model, found by the words that its prompt begins with. */
export interface Playing {
  readonly prompt: string;
  readonly model: RehearsalModel;
  /** How many requests have come, those that `before` answered included. */
  arrived(): number;
  /** Resolves when this many requests have come. */
  arrival(count: number): Promise<void>;
}

/** One address for the rehearsals of many runs at once: each request goes to the script that its prompt names. */
export function startModelStage(apiKey: string) {
  const playing = new Map<string, Playing & { play(request: Request): Promise<Response> }>();
  const server = Bun.serve({
    hostname: '127.0.0.1',
    port: 0,
    idleTimeout: 0,
    maxRequestBodySize: 64 * 1024 * 1024,
    async fetch(request) {
      const mark = /rehearse-[0-9a-f]{8}/.exec(await request.clone().text())?.[0] ?? '';
      return (await playing.get(mark)?.play(request)) ?? new Response('no such rehearsal', { status: 404 });
    },
  });
  return {
    /** As OPENAI_BASE_URL takes it. */
    url: `http://127.0.0.1:${server.port}/v1`,
    async add(role: Role): Promise<Playing> {
      const model = await startRehearsalModel({ apiKey: role.acceptedKey ?? apiKey, script: role.script });
      const mark = `rehearse-${crypto.randomUUID().slice(0, 8)}`;
      const waiting: { count: number; resolve: () => void }[] = [];
      let count = 0;
      const self = {
        prompt: `Play ${mark}.`,
        model,
        arrived: () => count,
        arrival(wanted: number) {
          const { promise, resolve } = Promise.withResolvers<void>();
          if (count >= wanted) resolve();
          else waiting.push({ count: wanted, resolve });
          return promise;
        },
        async play(request: Request) {
          count += 1;
          const number = count;
          for (const one of waiting) if (one.count <= number) one.resolve();
          const answered = await role.before?.(number, request.signal);
          if (answered) return answered;
          const { authorization = '', 'content-type': type = '' } = Object.fromEntries(request.headers);
          return fetch(`${model.url}/${new URL(request.url).pathname.split('/').pop()}`, {
            method: request.method,
            headers: { authorization, 'content-type': type },
            body: await request.text(),
            signal: request.signal,
            timeout: false,
          });
        },
      };
      playing.set(mark, self);
      return self;
    },
    async stop() {
      await Promise.all([server.stop(true), ...[...playing.values()].map(({ model }) => model.stop())]);
    },
  };
}
export type ModelStage = ReturnType<typeof startModelStage>;
