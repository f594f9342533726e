import type { Clock } from '../kernel/clock.ts';
import type { Log } from '../kernel/log.ts';
import { errorScrubber, keyScrubber, passedError, passedOn, protocolError } from './answers.ts';
import type { GatewayRun, ModelFailure } from './gateway.ts';
import { capResponsesRequest, maxRequestBytes, readText } from './limits.ts';
import { endingOfResponse, failureOfStatus, type MeteredUsage, noUsage } from './meter.ts';
import { costMicros } from './prices.ts';
import type { Recorder } from './record.ts';
import { relay } from './relay.ts';

/** The largest answer that is not a stream, and the largest body of a refusal, in bytes. */
const maxAnswerBytes = 64 * 1024 * 1024;

export interface ExchangeContext {
  readonly run: GatewayRun;
  readonly recorder: Recorder;
  readonly upstreamUrl: string;
  /** The proxy on the way there, or null. */
  readonly proxyUrl: string | null;
  readonly cacheKey: string;
  readonly log: Log;
  readonly clock: Clock;
  /** Aborted when the session closes. */
  readonly closing: AbortSignal;
  /** Keeps the session from closing before this has ended. */
  track(work: Promise<unknown>): void;
}

/** How a request that was counted ended. */
interface Settlement {
  readonly failure: ModelFailure | null;
  readonly status: number | null;
  readonly usage?: MeteredUsage;
  readonly reachedProvider?: boolean;
}

/**
 * Carries one request of the harness to the provider and its answer back. Whatever happens, a request that was counted
 * is settled exactly once: when its last event is seen, when it fails, or when the harness or the session goes away.
 */
export async function exchange(request: Request, context: ExchangeContext): Promise<Response> {
  const { run, recorder } = context;
  const place = recorder.begin();
  const refuse = (failure: ModelFailure, answer: Response): Response => {
    recorder.ended(place, failure, null);
    return answer;
  };

  const encoding = request.headers.get('content-encoding') ?? 'identity';
  if (encoding !== 'identity') {
    return refuse(
      'rejected',
      protocolError(400, 'unsupported_encoding', 'Compressed request bodies are not accepted.'),
    );
  }
  let text: string | null;
  try {
    text = await readText(request.body, maxRequestBytes, context.closing);
  } catch {
    return refuse('aborted', protocolError(400, 'incomplete_body', 'The request body ended early.'));
  }
  if (text === null) {
    const message = `The request body is larger than ${maxRequestBytes / 1024 / 1024} MiB.`;
    return refuse('rejected', protocolError(413, 'request_too_large', message, { retry: false }));
  }
  const capped = capResponsesRequest(text, run, context.cacheKey);
  if (!capped.ok) {
    const detail = { retry: false, ...(capped.param === undefined ? {} : { param: capped.param }) };
    return refuse('rejected', protocolError(capped.status, capped.code, capped.message, detail));
  }

  let apiKey: string | null;
  let requestId: string | null;
  try {
    apiKey = await run.apiKey();
    if (apiKey === null || apiKey === '') {
      const message = 'No API key is set up for the model provider of this run.';
      return refuse('authentication', protocolError(401, 'invalid_api_key', message, { retry: false }));
    }
    requestId = recorder.snapshot().requestLimitHit ? null : await run.reserve();
  } catch (error) {
    context.log.error('A model request could not be counted', error, { runId: run.runId });
    return refuse('unavailable', protocolError(503, 'gateway_unavailable', 'The request could not be counted.'));
  }
  if (requestId === null) {
    if (recorder.limitHit()) run.onLimit('model_requests');
    const message = 'This run has reached its limit of model requests (maxModelRequests).';
    return refuse('request_limit', protocolError(400, 'max_model_requests', message, { retry: false }));
  }
  recorder.counted();
  return send(request, capped.body, apiKey, context, settleOnce(requestId, place, context));
}

/** Resolves, never rejects, when the settlement is written down or could not be. */
type Settle = (settlement: Settlement) => Promise<void>;

/** The one settlement of a counted request: the first call decides, later ones wait for it. */
function settleOnce(requestId: string, place: number, context: ExchangeContext): Settle {
  const { run, recorder, log, clock } = context;
  const startedAt = clock();
  let settled: Promise<void> | null = null;
  return ({ failure, status, usage = noUsage, reachedProvider = true }) => {
    if (settled) return settled;
    const durationMs = Math.max(0, Math.round(clock() - startedAt));
    recorder.ended(place, failure, status);
    if (failure !== null && failure !== 'aborted') {
      log.warn('A model request failed', { runId: run.runId, provider: run.provider, status, failure });
    }
    const write = async () => {
      const cost = await costMicros(run.provider, run.model, usage).catch((error: unknown) => {
        log.error('A model request could not be priced', error, { runId: run.runId, model: run.model });
        return null;
      });
      await run.settle(requestId, {
        ...usage,
        reachedProvider,
        upstreamStatus: status,
        failure,
        costMicros: cost,
        durationMs,
      });
    };
    settled = write().catch((error: unknown) =>
      log.error('A model request could not be settled', error, { runId: run.runId }),
    );
    context.track(settled);
    return settled;
  };
}

async function send(
  request: Request,
  body: string,
  apiKey: string,
  context: ExchangeContext,
  settleRequest: Settle,
): Promise<Response> {
  const { closing } = context;
  if (request.signal.aborted || closing.aborted) {
    await settleRequest({ failure: 'aborted', status: null, reachedProvider: false });
    return protocolError(503, 'gateway_closed', 'The run is ending.', { retry: false });
  }
  let status: number | null = null;
  const leaving = new AbortController();
  const leave = () => {
    void settle({ failure: 'aborted', status });
    leaving.abort();
  };
  // Not AbortSignal.any: what it makes hangs on the session's signal, and with it each request's body, to the end.
  const settle: Settle = (settlement) => {
    closing.removeEventListener('abort', leave);
    return settleRequest(settlement);
  };
  request.signal.addEventListener('abort', leave, { once: true });
  closing.addEventListener('abort', leave, { once: true });

  let answer: Response;
  try {
    answer = await fetch(context.upstreamUrl, {
      method: 'POST',
      headers: requestHeaders(request.headers, apiKey),
      body,
      signal: leaving.signal,
      // Followed, a redirect would carry the request to a place that nobody configured.
      redirect: 'manual',
      ...(context.proxyUrl === null ? {} : { proxy: context.proxyUrl }),
      timeout: false,
    });
  } catch (error) {
    await settle({ failure: 'unavailable', status: null, reachedProvider: !neverLeft(error) });
    return protocolError(502, 'model_unavailable', 'The model provider cannot be reached.');
  }
  status = answer.status;

  if (answer.status !== 200) {
    const scrub = errorScrubber(apiKey, context.upstreamUrl);
    const text = await readText(answer.body, maxAnswerBytes).catch(() => null);
    await settle({ failure: failureOfStatus(answer.status), status });
    return passedError(answer, text ?? '', scrub);
  }
  const scrub = keyScrubber(apiKey);
  const headers = passedOn(answer.headers, scrub);
  if (answer.body !== null && answer.headers.get('content-type')?.includes('text/event-stream')) {
    const stream = relay(answer.body, {
      scrub,
      scrubError: errorScrubber(apiKey, context.upstreamUrl),
      ended: ({ failure, usage }) => settle({ failure, status, usage }),
    });
    return new Response(stream, { status: 200, headers });
  }
  return whole(answer, headers, scrub, settle);
}

/** An answer that is one JSON object, as harnesses ask for with `stream: false`. */
async function whole(
  answer: Response,
  headers: Headers,
  scrub: (text: string) => string,
  settle: Settle,
): Promise<Response> {
  let parsed: unknown;
  let text: string | null = null;
  try {
    text = await readText(answer.body, maxAnswerBytes);
    parsed = text === null ? undefined : JSON.parse(text);
  } catch {
    parsed = undefined;
  }
  if (text === null || parsed === undefined) {
    await settle({ failure: 'unavailable', status: answer.status });
    return protocolError(502, 'model_unavailable', 'The model provider sent an answer that cannot be read.');
  }
  const { failure, usage } = endingOfResponse(parsed);
  await settle({ failure, usage, status: answer.status });
  return new Response(scrub(text), { status: 200, headers });
}

/** Of the harness's own headers only these leave: the rest says who and where it is, or would be a second key. */
function requestHeaders(from: Headers, apiKey: string): Headers {
  const headers = new Headers({ authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' });
  // Compressed, a stream arrives in the compressor's pieces and not event by event.
  headers.set('accept-encoding', 'identity');
  headers.set('accept', from.get('accept') ?? '*/*');
  // The harness's name and version: providers treat programs differently by it. Without one, Bun would add its own.
  headers.set('user-agent', from.get('user-agent') ?? 'slipway');
  const beta = from.get('openai-beta');
  if (beta !== null) headers.set('openai-beta', beta);
  return headers;
}

/** True only where no connection was made; after that, a request may have been read and must count. */
function neverLeft(error: unknown): boolean {
  const code = error instanceof Error && 'code' in error ? String(error.code) : '';
  return /^(?:ConnectionRefused|FailedToOpenSocket|ECONNREFUSED|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|DNS|CERT|ERR_TLS|UNABLE_TO|DEPTH_ZERO|SELF_SIGNED)/.test(
    code,
  );
}
