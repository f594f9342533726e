import type { NewRunEvent, RunEventData } from '../runs/schema.ts';

/** A request to a model as the transcript tells of it. */
export const usageEvent = (data: RunEventData['usage']): NewRunEvent => ({ type: 'usage', data });

/**
 * Events for the requests that are written down and that the transcript does not tell of: a crash can fall between the
 * two. An event holds no request's id, so equal ones are counted.
 */
export function untoldUsage(
  requests: readonly RunEventData['usage'][],
  told: readonly Record<string, unknown>[],
): NewRunEvent[] {
  const counts = new Map<string, number>();
  for (const data of told) counts.set(keyOf(data), (counts.get(keyOf(data)) ?? 0) + 1);
  return requests.flatMap((request) => {
    const key = keyOf({ ...request });
    const left = counts.get(key) ?? 0;
    if (left === 0) return [usageEvent(request)];
    counts.set(key, left - 1);
    return [];
  });
}

const keyOf = ({ model, inputTokens, cachedInputTokens, outputTokens, costMicros }: Record<string, unknown>): string =>
  JSON.stringify([model, inputTokens, cachedInputTokens, outputTokens, costMicros]);
