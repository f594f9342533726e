import type { NewRunEvent } from '../runs/schema.ts';
import { DummyLine, DummyScript, dummyScriptPath } from '../sandbox/dummy-schema.ts';
import { boundedText, publicText, sentence } from './event-text.ts';
import type { Harness, HarnessId, HarnessLaunch, HarnessReader, HarnessSignal, HarnessTurn } from './harness.ts';

const maxGarbageWarnings = 3;

/**
 * A harness whose prompt says what happens: `{ "steps": [...] }`, whole or in a line of its own, is played by the dummy
 * sandbox step by step; any other text is echoed as a message. Its session is `dummy-session`, and an echo says
 * whether it continues one.
 */
export function dummyHarness(id: HarnessId = 'dummy'): Harness {
  return { id, launch, reader };
}

function launch(turn: HarnessTurn): HarnessLaunch {
  return {
    command: ['dummy-agent'],
    environment: {},
    files: [
      { path: dummyScriptPath, content: JSON.stringify(scriptOf(turn)) },
      { path: '/state/turn/prompt.txt', content: turn.prompt },
      { path: '/state/dummy/system.txt', content: turn.systemPrompt },
    ],
  };
}

function scriptOf(turn: HarnessTurn): DummyScript {
  const sessionId = turn.sessionId ?? 'dummy-session';
  const steps = stepsIn(turn.prompt);
  if (steps === undefined) {
    const echo = turn.sessionId === null ? turn.prompt : `Continuing ${turn.sessionId}: ${turn.prompt}`;
    return { sessionId, steps: [{ do: 'message', text: echo }] };
  }
  const script = DummyScript.safeParse({ sessionId, steps });
  if (script.success) return script.data;
  const reason = script.error.issues.map((issue) => `${issue.path.join('.')}: ${issue.message}`).join('; ');
  return {
    sessionId,
    steps: [
      { do: 'complain', line: `The prompt is no script: ${reason}` },
      { do: 'exit', code: 2, outOfMemory: false },
    ],
  };
}

/** The script is the whole prompt, or its last line that is one: the server may put words around what a user wrote. */
function stepsIn(prompt: string): unknown {
  const candidates = [prompt, ...prompt.split('\n').reverse()];
  return candidates.map((text) => parse(text)?.steps).find((steps) => steps !== undefined);
}

function reader(): HarnessReader {
  let answer: string | null = null;
  let failure: string | null = null;
  let calls = 0;
  let garbage = 0;

  const read = (line: string): readonly HarnessSignal[] => {
    const parsed = DummyLine.safeParse(parse(line));
    if (parsed.success) return meaningOf(parsed.data);
    garbage += 1;
    if (garbage > maxGarbageWarnings) return [];
    const message = `The agent program printed a line that is no event: ${sentence(publicText(line.slice(0, 1000)))}`;
    return [emit({ type: 'warning', data: { message } })];
  };

  const meaningOf = (line: DummyLine): readonly HarnessSignal[] => {
    switch (line.type) {
      case 'session':
        return [{ kind: 'session', sessionId: line.sessionId }];
      case 'message':
        answer = boundedText(line.text);
        return [emit({ type: 'message', data: { text: answer } })];
      case 'tool': {
        calls += 1;
        const callId = `call_${calls}`;
        const { command, exitCode } = line;
        const output = boundedText(line.output);
        return [
          emit({
            type: 'tool_call',
            data: { callId, tool: 'shell', kind: 'command', server: null, input: { command } },
          }),
          emit({ type: 'tool_result', data: { callId, ok: exitCode === 0, output, exitCode } }),
        ];
      }
      case 'file': {
        const changes = [{ path: line.path, kind: 'update' as const }];
        return [emit({ type: 'file_change', data: { callId: null, ok: true, changes } })];
      }
      case 'error':
        failure = sentence(publicText(line.message));
        return [emit({ type: 'error', data: { message: boundedText(publicText(line.message)) } })];
    }
  };

  return {
    read,
    conclude(exitCode) {
      if (exitCode === 0) return { ok: true, answer, failure: null };
      const message = failure ?? `The agent program ended with exit status ${exitCode}`;
      return { ok: false, answer, failure: { category: 'execution_failed', message } };
    },
  };
}

const emit = (event: NewRunEvent): HarnessSignal => ({ kind: 'event', event });

function parse(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}
