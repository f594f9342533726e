import { z } from 'zod';
import { eventStream } from '../http/live.ts';
import { operation, streamOperation } from '../http/operation.ts';
import { absent } from '../kernel/fault.ts';
import { EgressEntry, EventsQuery, Message, PageQuery, Run, RunEvent, RunSummary, TurnNumber } from './schema.ts';
import type { RunService } from './service.ts';

const RunParams = z.object({ runId: z.guid().toLowerCase() });
const AutomationParams = z.object({ automationId: z.guid().toLowerCase() });

/** A silent stream says this often that it lives, so that proxies on the way keep it open. */
const heartbeatMs = 15_000;

export interface RunOperationNeeds {
  readonly service: RunService;
  egress(
    runId: string,
    page: { page: number; pageSize: number },
  ): Promise<{ total: number; requests: z.input<typeof EgressEntry>[] }>;
  /** The harness's own output of a turn as it came, or undefined when there is none. */
  rawTurn(runId: string, turn: number): Promise<ReadableStream<Uint8Array> | undefined>;
}

export function runOperations({ service, egress, rawTurn }: RunOperationNeeds) {
  return [
    operation({
      id: 'start_automation_run',
      summary: 'Start a run',
      method: 'POST',
      path: '/automations/:automationId/runs',
      status: 202,
      params: AutomationParams,
      body: z.object({ message: Message.optional() }).optional(),
      output: z.object({ runId: z.guid(), duplicate: z.boolean() }),
      async run({ params, body, principal }) {
        const { runId } = await service.start(principal.workspaceId, params.automationId, body?.message ?? null);
        return { runId, duplicate: false };
      },
    }),
    operation({
      id: 'list_automation_runs',
      summary: "List an automation's runs, newest first",
      method: 'GET',
      path: '/automations/:automationId/runs',
      status: 200,
      params: AutomationParams,
      query: PageQuery,
      output: z.object({ page: z.int(), pageSize: z.int(), total: z.int(), runs: z.array(RunSummary) }),
      run: ({ params, query, principal }) =>
        service.list(principal.workspaceId, params.automationId, query.page, query.pageSize),
    }),
    operation({
      id: 'get_automation_run',
      summary: 'Read a run with its transcript',
      method: 'GET',
      path: '/runs/:runId',
      status: 200,
      params: RunParams,
      output: z.object({ run: Run }),
      run: async ({ params, principal }) => ({ run: await service.get(principal.workspaceId, params.runId) }),
    }),
    operation({
      id: 'list_run_events',
      summary: "List a run's events after one",
      method: 'GET',
      path: '/runs/:runId/events',
      status: 200,
      params: RunParams,
      query: EventsQuery,
      output: z.object({ events: z.array(RunEvent), last: z.int() }),
      run: ({ params, query, principal }) => service.events(principal.workspaceId, params.runId, query.after),
    }),
    streamOperation({
      id: 'stream_run_events',
      summary: "Follow a run's events live",
      method: 'GET',
      path: '/runs/:runId/stream',
      params: RunParams,
      query: EventsQuery,
      contentType: 'text/event-stream',
      async open({ params, query, headers, principal, signal }) {
        const { id } = await service.find(principal.workspaceId, params.runId);
        const seen = /^\d{1,9}$/.exec(headers.get('last-event-id') ?? '')?.[0];
        return eventStream(frames(service.follow(id, seen === undefined ? query.after : Number(seen), signal)), {
          heartbeatMs,
          signal,
        });
      },
    }),
    operation({
      id: 'list_run_egress',
      summary: "List a run's outbound requests",
      method: 'GET',
      path: '/runs/:runId/egress',
      status: 200,
      params: RunParams,
      query: PageQuery,
      output: z.object({ page: z.int(), pageSize: z.int(), total: z.int(), requests: z.array(EgressEntry) }),
      async run({ params, query, principal }) {
        await service.find(principal.workspaceId, params.runId);
        return { ...query, ...(await egress(params.runId, query)) };
      },
    }),
    streamOperation({
      id: 'download_run_turn',
      summary: "Download the harness's own output of a turn",
      method: 'GET',
      path: '/runs/:runId/turns/:turn/raw',
      params: RunParams.extend({ turn: TurnNumber }),
      contentType: 'application/x-ndjson',
      async open({ params, principal }) {
        await service.find(principal.workspaceId, params.runId);
        const stream = await rawTurn(params.runId, params.turn);
        if (!stream) throw absent('not_found', 'The run has no such turn, or its harness printed nothing');
        return stream;
      },
    }),
    operation({
      id: 'send_automation_run_message',
      summary: 'Continue a finished run with a message',
      method: 'POST',
      path: '/runs/:runId/messages',
      status: 202,
      params: RunParams,
      body: z.object({ message: Message }),
      output: z.object({ queued: z.boolean() }),
      async run({ params, body, principal }) {
        await service.message(principal.workspaceId, params.runId, body.message);
        return { queued: true };
      },
    }),
    operation({
      id: 'cancel_automation_run',
      summary: 'Cancel an active run',
      method: 'POST',
      path: '/runs/:runId/cancel',
      status: 200,
      params: RunParams,
      output: z.object({ cancelRequested: z.boolean() }),
      async run({ params, principal }) {
        await service.cancel(principal.workspaceId, params.runId);
        return { cancelRequested: true };
      },
    }),
  ];
}

async function* frames(events: AsyncIterable<RunEvent>) {
  for await (const event of events) yield { id: event.id, event: event.type, data: event };
}
