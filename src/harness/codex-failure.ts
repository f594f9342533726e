import type { FailureCategory } from '../runs/schema.ts';
import { publicText, sentence } from './event-text.ts';
import type { HarnessConclusion } from './harness.ts';

const messages: Partial<Record<FailureCategory, string>> = {
  model_authentication_failed: 'The model provider refused the API key: check the model credential',
  model_rate_limited: 'The model provider refused further requests for now: try again later or raise its rate limit',
  model_unavailable: 'The model provider failed or could not be reached: try again later',
  output_limit_exceeded: 'An answer of the model was longer than maxOutputTokensPerRequest: raise it in the automation',
  model_request_limit_exceeded: 'The run used up its maxModelRequests: raise it in the automation',
};

/** The category and the public sentence for what codex reported as the end of its turn. */
export function codexFailure(reported: string): NonNullable<HarnessConclusion['failure']> {
  const { status, text } = unwrapError(reported);
  const category = categoryOf(status, text);
  return { category, message: messages[category] ?? `The agent failed: ${sentence(publicText(text))}` };
}

/** Codex passes some errors on as the JSON that it got from the provider or the gateway: with status 400 always. */
export function unwrapError(reported: string): { status: number | null; text: string } {
  const named = /(?:unexpected|last) status:? (\d{3})\b/i.exec(reported)?.[1];
  const status = named === undefined ? null : Number(named);
  if (!reported.startsWith('{')) return { status, text: reported };
  try {
    const body = JSON.parse(reported) as { status?: unknown; error?: { message?: unknown } | null };
    const text = body.error?.message;
    return {
      status: typeof body.status === 'number' ? body.status : status,
      text: typeof text === 'string' ? text : reported,
    };
  } catch {
    return { status, text: reported };
  }
}

function categoryOf(status: number | null, text: string): FailureCategory {
  // Words of our own gateway come before the status, which is 400 for both.
  if (/maxModelRequests|max_model_requests/.test(text)) return 'model_request_limit_exceeded';
  if (/max_output_tokens/.test(text)) return 'output_limit_exceeded';
  if (status === 401 || status === 403) return 'model_authentication_failed';
  if (status === 429) return 'model_rate_limited';
  if (status !== null && status >= 500) return 'model_unavailable';
  if (status !== null) return 'execution_failed';
  if (/rate limit/i.test(text)) return 'model_rate_limited';
  if (
    /stream disconnected|high demand|error sending request|connection (?:failed|refused|reset)|timed out/i.test(text)
  ) {
    return 'model_unavailable';
  }
  return 'execution_failed';
}
