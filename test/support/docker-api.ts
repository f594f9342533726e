import type { Run, RunEvent } from '../../src/runs/schema.ts';

export interface ApiAnswer {
  readonly status: number;
  readonly text: string;
  // biome-ignore lint/suspicious/noExplicitAny: a test looks into answers of every shape.
  readonly body: any;
}

/** The management API over HTTP, as a client of a listening server has it. */
export function managementApi(url: string, key: string) {
  const request = (method: string, route: string, body?: unknown) =>
    fetch(`${url}/api/v1${route}`, {
      method,
      headers: {
        authorization: `Bearer ${key}`,
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });

  async function call(method: string, route: string, body?: unknown): Promise<ApiAnswer> {
    const response = await request(method, route, body);
    const text = await response.text();
    const isJson = response.headers.get('content-type')?.startsWith('application/json') === true;
    return { status: response.status, text, body: isJson ? JSON.parse(text) : null };
  }

  /** The answer's body; throws where the status is another one than `status`. */
  async function must(status: number, method: string, route: string, body?: unknown) {
    const answer = await call(method, route, body);
    if (answer.status !== status) throw new Error(`${method} ${route}: ${answer.status} ${answer.text}`);
    return answer.body;
  }

  /** A run's events as they happen, by server-sent events, until the turn ends. */
  async function* follow(runId: string, after = 0): AsyncGenerator<RunEvent> {
    const response = await request('GET', `/runs/${runId}/stream?after=${after}`);
    const decoder = new TextDecoder();
    let rest = '';
    for await (const piece of response.body ?? []) {
      const frames = (rest + decoder.decode(piece, { stream: true })).split('\n\n');
      rest = frames.pop() ?? '';
      for (const frame of frames) {
        const data = frame.split('\n').find((line) => line.startsWith('data:'));
        if (data !== undefined) yield JSON.parse(data.slice('data:'.length)) as RunEvent;
      }
    }
  }

  const run = async (runId: string): Promise<Run> => (await must(200, 'GET', `/runs/${runId}`)).run;

  return {
    call,
    must,
    follow,
    run,
    /** Resolves with the run when its turn has ended. */
    async finished(runId: string): Promise<Run> {
      for await (const _ of follow(runId));
      return run(runId);
    },
    /** Resolves with the first event that is as wanted. */
    async seen(runId: string, wanted: (event: RunEvent) => boolean): Promise<RunEvent> {
      for await (const event of follow(runId)) if (wanted(event)) return event;
      throw new Error(`the run ended without the event: ${JSON.stringify((await run(runId)).events.slice(-3))}`);
    },
    async secret(name: string, value: string, allowedHosts: readonly string[]): Promise<string> {
      return (await must(201, 'POST', '/secrets', { name, value, allowedHosts })).secret.id;
    },
    /** Creates an automation and answers its id; fields given replace the usual configuration. */
    async automation(configuration: Record<string, unknown>): Promise<string> {
      const { automation } = await must(201, 'POST', '/automations', {
        name: `Automation ${crypto.randomUUID()}`,
        configuration: {
          triggers: [{ kind: 'schedule', frequency: 'daily', hour: 6, weekday: 1, timezone: 'UTC' }],
          ...configuration,
        },
      });
      return automation.id;
    },
    async start(automationId: string, message?: string): Promise<string> {
      const body = message === undefined ? {} : { message };
      return (await must(202, 'POST', `/automations/${automationId}/runs`, body)).runId;
    },
  };
}
export type ManagementApi = ReturnType<typeof managementApi>;

/** What the agent's commands printed in a turn, oldest first. */
export const outputsOf = (run: Run, turn = run.turn): string[] =>
  run.events.flatMap((event) =>
    event.type === 'tool_result' && event.turn === turn ? [String(event.data?.output)] : [],
  );

export const eventsOf = (run: Run, type: RunEvent['type']): RunEvent[] =>
  run.events.filter((event) => event.type === type);
