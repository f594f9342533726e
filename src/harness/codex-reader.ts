import type { NewRunEvent, RunEventData } from '../runs/schema.ts';
import { codexFailure, unwrapError } from './codex-failure.ts';
import { boundedText, boundedValue, publicText, sentence } from './event-text.ts';
import type { HarnessConclusion, HarnessReader, HarnessSignal } from './harness.ts';

type Fields = Readonly<Record<string, unknown>>;

const maxGarbageWarnings = 3;
const maxChanges = 2000;
const maxNameLength = 200;

/**
 * Reads `codex exec --json` (0.169): thread, turn and item events, one JSON object a line. Everything is checked
 * before use, for a newer codex may print other things. Its token counts are those of the whole thread and are left
 * out: the gateway counts. Paths are kept as codex reports them, absolute.
 */
export function codexReader(): HarnessReader {
  const openCalls = new Set<string>();
  let planVersion = 0;
  let lastPlan: string | null = null;
  let garbage = 0;
  let answer: string | null = null;
  let lastError: string | null = null;
  let turnFailed: string | null = null;
  let turnCompleted = false;

  const read = (line: string): readonly HarnessSignal[] => {
    if (line.trim() === '') return [];
    const event = parse(line);
    if (event) return readEvent(event);
    garbage += 1;
    if (garbage > maxGarbageWarnings) return [];
    return [warning(`The agent program printed a line that is no event: ${sentence(publicText(line.slice(0, 1000)))}`)];
  };

  const readEvent = (event: Fields): readonly HarnessSignal[] => {
    switch (event.type) {
      case 'thread.started': {
        const id = text(event.thread_id);
        // It becomes an argument of the next turn's command.
        return /^[0-9A-Za-z][\w-]{0,127}$/.test(id) ? [{ kind: 'session', sessionId: id }] : [];
      }
      case 'turn.completed':
        turnCompleted = true;
        return [];
      case 'turn.failed':
        return failed(text(fields(event.error).message) || 'The turn failed without a reason');
      case 'error':
        return errorOrRetry(text(event.message));
      case 'item.started':
      case 'item.updated':
      case 'item.completed':
        return readItem(fields(event.item), event.type === 'item.completed');
      default:
        return [];
    }
  };

  const errorOrRetry = (message: string): readonly HarnessSignal[] => {
    if (message === '') return [];
    if (message.startsWith('Reconnecting')) return [warning(message)];
    lastError = message;
    return [error(message)];
  };

  const failed = (message: string): readonly HarnessSignal[] => {
    turnFailed = message;
    // Codex reports the same words as an `error` first.
    return message === lastError ? [] : [error(message)];
  };

  const readItem = (item: Fields, isCompleted: boolean): readonly HarnessSignal[] => {
    const callId = text(item.id).slice(0, maxNameLength);
    switch (item.type) {
      case 'agent_message': {
        if (!isCompleted || typeof item.text !== 'string') return [];
        answer = boundedText(item.text);
        return [emit({ type: 'message', data: { text: answer } })];
      }
      case 'reasoning': {
        const thought = text(item.text);
        return isCompleted && thought !== '' ? [emit({ type: 'reasoning', data: { text: boundedText(thought) } })] : [];
      }
      case 'command_execution':
        return call(isCompleted, commandCall(callId, item), () => commandResult(callId, item));
      case 'mcp_tool_call':
        return call(isCompleted, mcpCall(callId, item), () => mcpResult(callId, item));
      case 'web_search':
        return isCompleted ? call(true, webCall(callId, item), () => done(callId)) : [];
      case 'todo_list':
        return plan(callId, item);
      case 'file_change':
        return isCompleted ? [emit({ type: 'file_change', data: fileChange(callId, item) })] : [];
      case 'error': {
        const message = text(item.message);
        return isCompleted && message !== '' ? [warning(message)] : [];
      }
      default:
        return [];
    }
  };

  /** A call is told once, with its start or, where that was missed, with its end. */
  const call = (
    isCompleted: boolean,
    data: RunEventData['tool_call'],
    result: () => RunEventData['tool_result'],
  ): readonly HarnessSignal[] => {
    const isKnown = openCalls.has(data.callId);
    const start = isKnown ? [] : [emit({ type: 'tool_call', data })];
    if (!isCompleted) {
      openCalls.add(data.callId);
      return start;
    }
    openCalls.delete(data.callId);
    return [...start, emit({ type: 'tool_result', data: result() })];
  };

  /** The agent's plan has no output: each version of it is a call that is done at once. */
  const plan = (id: string, item: Fields): readonly HarnessSignal[] => {
    const input = boundedValue({ items: item.items });
    const shown = JSON.stringify(input);
    if (shown === lastPlan) return [];
    lastPlan = shown;
    planVersion += 1;
    const callId = `${id}.${planVersion}`;
    return call(true, { callId, tool: 'todo_list', kind: 'other', server: null, input }, () => done(callId));
  };

  const conclude = (exitCode: number): HarnessConclusion => {
    const reported = turnFailed ?? (exitCode === 0 && turnCompleted ? null : lastError);
    if (reported !== null) return { ok: false, answer, failure: codexFailure(reported) };
    if (exitCode === 0 && turnCompleted) return { ok: true, answer, failure: null };
    const message =
      exitCode === 0
        ? 'The agent program ended before its turn was complete: send a message to continue'
        : `The agent program ended with exit status ${exitCode}: look at the raw stream of the turn`;
    return { ok: false, answer, failure: { category: 'execution_failed', message } };
  };

  return { read, conclude };
}

function parse(line: string): Fields | undefined {
  try {
    const value: unknown = JSON.parse(line);
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Fields) : undefined;
  } catch {
    return undefined;
  }
}

const fields = (value: unknown): Fields =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Fields) : {};

const text = (value: unknown): string => (typeof value === 'string' ? value : '');

const emit = (event: NewRunEvent): HarnessSignal => ({ kind: 'event', event });

const warning = (message: string) => emit({ type: 'warning', data: { message: boundedText(publicText(message)) } });

const error = (reported: string) =>
  emit({ type: 'error', data: { message: boundedText(publicText(unwrapError(reported).text)) } });

const done = (callId: string): RunEventData['tool_result'] => ({ callId, ok: true, output: '', exitCode: null });

function commandCall(callId: string, item: Fields): RunEventData['tool_call'] {
  const input = { command: boundedText(text(item.command)) };
  return { callId, tool: 'shell', kind: 'command', server: null, input };
}

function commandResult(callId: string, item: Fields): RunEventData['tool_result'] {
  const exitCode = Number.isInteger(item.exit_code) ? (item.exit_code as number) : null;
  const ok = item.status === 'completed' && exitCode === 0;
  return { callId, ok, output: boundedText(text(item.aggregated_output)), exitCode };
}

function mcpCall(callId: string, item: Fields): RunEventData['tool_call'] {
  return {
    callId,
    tool: text(item.tool).slice(0, maxNameLength) || 'unknown',
    kind: 'mcp',
    server: text(item.server).slice(0, maxNameLength) || null,
    input: boundedValue(item.arguments),
  };
}

function mcpResult(callId: string, item: Fields): RunEventData['tool_result'] {
  const failure = text(fields(item.error).message);
  const content = fields(item.result).content;
  const parts = (Array.isArray(content) ? content : []).map((part) => {
    const { text: said, type } = fields(part);
    return typeof said === 'string' ? said : `[${text(type) || 'content'}]`;
  });
  const ok = item.status === 'completed' && failure === '';
  return { callId, ok, output: boundedText(failure || parts.join('\n')), exitCode: null };
}

function webCall(callId: string, item: Fields): RunEventData['tool_call'] {
  return { callId, tool: 'web_search', kind: 'web', server: null, input: { query: boundedText(text(item.query)) } };
}

function fileChange(callId: string, item: Fields): RunEventData['file_change'] {
  const reported = Array.isArray(item.changes) ? item.changes.slice(0, maxChanges) : [];
  const changes = reported.map(fields).flatMap((change) => {
    const path = boundedText(text(change.path));
    const kind = change.kind === 'add' || change.kind === 'delete' ? change.kind : 'update';
    return path === '' ? [] : [{ path, kind } as const];
  });
  return { callId: callId || null, ok: item.status === 'completed', changes };
}
