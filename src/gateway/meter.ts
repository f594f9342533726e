import type { ModelFailure } from './gateway.ts';

/** Tokens of one request, as its provider reports them. */
export interface MeteredUsage {
  readonly inputTokens: number;
  readonly cachedInputTokens: number;
  readonly cacheWriteTokens: number;
  readonly outputTokens: number;
}

export const noUsage: MeteredUsage = { inputTokens: 0, cachedInputTokens: 0, cacheWriteTokens: 0, outputTokens: 0 };

/** How a response ended, by its own word. `failure` is null for success. */
export interface Ending {
  readonly failure: ModelFailure | null;
  readonly usage: MeteredUsage;
}

/**
 * The ending that one event of a Responses stream tells, or null for an event in the middle. Usage has to be taken
 * from the event itself: clients hang up right after the last one, so nothing runs at the stream's end.
 */
export function endingOfEvent(event: unknown): Ending | null {
  if (!isObject(event)) return null;
  switch (event.type) {
    case 'response.completed':
    case 'response.incomplete':
    case 'response.failed':
    case 'response.cancelled':
      return isObject(event.response) ? endingOfResponse(event.response) : null;
    case 'error':
      // The event carries the error's fields itself; some versions of the API nest them.
      return {
        failure: failureOfCode(isObject(event.error) ? event.error.code : event.code),
        usage: noUsage,
      };
    default:
      return null;
  }
}

/** The ending of a response object, as it stands in the last event or as a body of its own. */
export function endingOfResponse(response: unknown): Ending {
  if (!isObject(response)) return { failure: 'unavailable', usage: noUsage };
  const usage = usageOf(response.usage);
  switch (response.status) {
    case 'completed':
      return { failure: null, usage };
    case 'incomplete': {
      const details = response.incomplete_details;
      const capped = isObject(details) && details.reason === 'max_output_tokens';
      return { failure: capped ? 'output_limit' : 'rejected', usage };
    }
    case 'failed': {
      const error = response.error;
      return { failure: failureOfCode(isObject(error) ? error.code : null), usage };
    }
    default:
      return { failure: 'unavailable', usage };
  }
}

/** What the status of a refused request means. */
export function failureOfStatus(status: number): ModelFailure {
  if (status === 401 || status === 403) return 'authentication';
  if (status === 429) return 'rate_limited';
  // A redirect is not followed, for the key would go along: the base URL leads to no model.
  return status >= 400 && status < 500 ? 'rejected' : 'unavailable';
}

function failureOfCode(code: unknown): ModelFailure {
  if (code === 'rate_limit_exceeded' || code === 'insufficient_quota') return 'rate_limited';
  if (code === 'invalid_api_key') return 'authentication';
  const ours =
    typeof code === 'string' &&
    !['server_error', 'server_is_overloaded', 'slow_down', 'vector_store_timeout'].includes(code);
  return ours ? 'rejected' : 'unavailable';
}

function usageOf(usage: unknown): MeteredUsage {
  if (!isObject(usage)) return noUsage;
  const inputTokens = count(usage.input_tokens);
  const details = isObject(usage.input_tokens_details) ? usage.input_tokens_details : {};
  const cachedInputTokens = Math.min(count(details.cached_tokens), inputTokens);
  return {
    inputTokens,
    cachedInputTokens,
    cacheWriteTokens: Math.min(count(details.cache_write_tokens), inputTokens - cachedInputTokens),
    outputTokens: count(usage.output_tokens),
  };
}

const count = (value: unknown): number =>
  typeof value === 'number' && Number.isSafeInteger(value) && value > 0 ? value : 0;

/** True for a JSON object, so that its fields may be looked at. */
export const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
