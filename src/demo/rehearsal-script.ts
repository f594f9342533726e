/** What the rehearsal model does in a conversation: one entry for each message of the person, in order. */
export interface RehearsalScript {
  /** A conversation that goes on for longer repeats the last turn. */
  readonly turns: readonly RehearsalTurn[];
  /** What goes wrong at the request with this number, counted from 1 over the server's life. */
  readonly fault?: (requestNumber: number) => RehearsalFault | null;
}

export interface RehearsalTurn {
  readonly steps: readonly RehearsalStep[];
  /** The final answer; a function is given what the steps' tools printed, oldest first. */
  readonly answer: string | ((outputs: readonly string[]) => string);
}

/** One response that calls tools: a shell command, several at once, or a patch in codex's format. */
export type RehearsalStep = {
  readonly say?: string;
  readonly reasoning?: string;
  /** What goes wrong in this step, each time that it is asked for. */
  readonly fault?: RehearsalFault;
} & ({ readonly run: string | readonly string[] } | { readonly patch: string });

export type RehearsalFault =
  /** The request is refused before anything is answered. */
  | { readonly kind: 'status'; readonly status: number; readonly retryAfterSeconds?: number }
  /** The stream ends in its middle. */
  | { readonly kind: 'cut' }
  /** The stream begins and says nothing more until the other side goes away. */
  | { readonly kind: 'hang' }
  /** Every event waits. */
  | { readonly kind: 'slow'; readonly delayMs: number }
  /** The response ends as `response.incomplete`, as if it had reached the cap of its output. */
  | { readonly kind: 'incomplete' }
  /** The response ends as `response.failed` with this code. */
  | { readonly kind: 'failed'; readonly code: string }
  /** Events whose data is not JSON stand between the others, and the last event is one of them. */
  | { readonly kind: 'malformed' };

export type ToolCall =
  | { readonly kind: 'function'; readonly name: string; readonly arguments: string }
  | { readonly kind: 'custom'; readonly name: string; readonly input: string };

/** What the model answers to one request. */
export interface Reply {
  readonly reasoning: string | null;
  readonly text: string | null;
  readonly calls: readonly ToolCall[];
  readonly fault: RehearsalFault | null;
}

export interface OfferedTool {
  readonly name: string;
  readonly custom: boolean;
}

/** The items of a request's input that the script looks at; everything else passes by. */
export type ConversationItem =
  | { readonly kind: 'person' }
  | { readonly kind: 'model' }
  | { readonly kind: 'call'; readonly id: string; readonly name: string }
  | { readonly kind: 'output'; readonly id: string; readonly text: string };

/**
 * Where the conversation stands follows from its items alone, so that a resumed session goes on where it was. Messages
 * of the person that follow each other are one turn: codex puts its own in front (the environment, AGENTS.md).
 */
export function nextReply(
  script: RehearsalScript,
  items: readonly ConversationItem[],
  tools: readonly OfferedTool[],
): Reply {
  const { turnNumber, rest } = currentTurn(items);
  const turn = script.turns[Math.min(turnNumber, script.turns.length) - 1];
  if (turn === undefined) return finalReply('The script of this rehearsal is empty.');

  const names = new Map(rest.flatMap((item) => (item.kind === 'call' ? [[item.id, item.name] as const] : [])));
  const outputs = rest.filter((item) => item.kind === 'output');
  const results = outputs.filter((item) => names.get(item.id) !== 'write_stdin').map((item) => item.text);

  // A long command is answered early with the number of a session: a real model then asks for the rest.
  const session = /Process running with session ID (\d+)/.exec(outputs.at(-1)?.text ?? '')?.[1];
  if (session !== undefined && tools.some((tool) => tool.name === 'write_stdin')) {
    const wait = JSON.stringify({ session_id: Number(session), chars: '', yield_time_ms: 30_000 });
    return {
      reasoning: null,
      text: null,
      calls: [{ kind: 'function', name: 'write_stdin', arguments: wait }],
      fault: null,
    };
  }

  let done = 0;
  for (const step of turn.steps) {
    done += 'run' in step && typeof step.run !== 'string' ? step.run.length : 1;
    if (results.length < done) return replyOfStep(step, tools);
  }
  return finalReply(typeof turn.answer === 'string' ? turn.answer : turn.answer(results));
}

function currentTurn(items: readonly ConversationItem[]): { turnNumber: number; rest: readonly ConversationItem[] } {
  let turnNumber = 0;
  let start = 0;
  items.forEach((item, index) => {
    if (item.kind !== 'person') return;
    if (items[index - 1]?.kind !== 'person') turnNumber += 1;
    start = index + 1;
  });
  return { turnNumber: Math.max(1, turnNumber), rest: items.slice(start) };
}

function replyOfStep(step: RehearsalStep, tools: readonly OfferedTool[]): Reply {
  const calls =
    'patch' in step ? [patchCall(step.patch, tools)] : [step.run].flat().map((command) => shellCall(command, tools));
  const offered = calls.filter((call) => call !== null);
  if (offered.length < calls.length) {
    const wanted = 'patch' in step ? 'apply_patch' : 'exec_command, shell_command or shell';
    return finalReply(`This rehearsal needs the tool ${wanted}, and the harness does not offer it.`);
  }
  return { reasoning: step.reasoning ?? null, text: step.say ?? null, calls: offered, fault: step.fault ?? null };
}

const finalReply = (text: string): Reply => ({ reasoning: null, text, calls: [], fault: null });

/** The shell tool goes by different names and arguments in different models' tool sets. */
function shellCall(command: string, tools: readonly OfferedTool[]): ToolCall | null {
  const offers = (name: string) => tools.some((tool) => tool.name === name && !tool.custom);
  const call = (name: string, args: object): ToolCall => ({ kind: 'function', name, arguments: JSON.stringify(args) });
  if (offers('exec_command')) return call('exec_command', { cmd: command, yield_time_ms: 30_000 });
  if (offers('shell_command')) return call('shell_command', { command });
  if (offers('shell')) return call('shell', { command: ['bash', '-lc', command] });
  return null;
}

function patchCall(patch: string, tools: readonly OfferedTool[]): ToolCall | null {
  const tool = tools.find(({ name }) => name === 'apply_patch');
  if (tool === undefined) return null;
  return tool.custom
    ? { kind: 'custom', name: tool.name, input: patch }
    : { kind: 'function', name: tool.name, arguments: JSON.stringify({ input: patch }) };
}
