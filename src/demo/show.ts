import type { z } from 'zod';
import type { EgressEntry, Run, RunEvent, RunEventData, RunEventType } from '../runs/schema.ts';

type Entry = z.infer<typeof EgressEntry>;

/** Writes the demo for a person at a terminal; plain text where `colours` is off. */
export function presenter(out: (text: string) => void, colours: boolean) {
  const paint = (code: number) => (text: string) => (colours ? `\u001b[${code}m${text}\u001b[0m` : text);
  const [bold, dim, red, green, yellow, cyan] = [1, 2, 31, 32, 33, 36].map(paint) as [
    Paint,
    Paint,
    Paint,
    Paint,
    Paint,
    Paint,
  ];

  const lines = (text: string, most = 14): string => {
    const all = text.trimEnd().split('\n');
    const shown = all.length > most ? [...all.slice(0, most), `… ${all.length - most} more lines`] : all;
    return shown.map((line) => dim(`    │ ${line}`)).join('\n');
  };

  /** How an event reads in the transcript; an empty text for one that is shown elsewhere. */
  const renderers: { [T in RunEventType]?: (data: RunEventData[T]) => string } = {
    run_queued: () => dim('· queued'),
    run_started: () => dim('· started'),
    repositories_checked_out: ({ repositories }) =>
      dim(
        `· checked out ${repositories.map((r) => `${r.fullName} (${r.branch}, ${r.commit.slice(0, 8)}) in ${r.path}`).join(', ')}`,
      ),
    sandbox_ready: ({ harness, model }) => dim(`· sandbox ready, ${harness} runs ${model}`),
    user_message: ({ text }) => `${bold('you')}  ${text}`,
    message: ({ text }) => `${cyan('says')} ${text}`,
    reasoning: ({ text }) => dim(`     ${text.replaceAll('\n', ' ')}`),
    tool_call: ({ input, tool }) => `${yellow('runs')} ${commandOf(input) ?? tool}`,
    tool_result: ({ ok, output, exitCode }) => `${lines(output)}${ok ? '' : `\n    ${red(`exit ${exitCode ?? '?'}`)}`}`,
    file_change: ({ changes }) => changes.map((change) => `${yellow(change.kind)} ${change.path}`).join('\n'),
    egress_denied: ({ method, host, path, reason }) => red(`refused ${method ?? ''} ${host}${path ?? ''}: ${reason}`),
    warning: ({ message }) => yellow(`warning: ${message}`),
    error: ({ message }) => red(`error: ${message}`),
    cancel_requested: () => dim('· cancel requested'),
    run_succeeded: () => green('· succeeded'),
    run_failed: ({ category, message }) => red(`· failed (${category}): ${message}`),
    run_cancelled: () => yellow('· cancelled'),
  };

  return {
    title: (text: string) => out(`\n${bold(text)}`),
    step: (text: string) => out(`${green('✓')} ${text}`),
    note: (text: string) => out(dim(`  ${text}`)),
    warn: (text: string) => out(yellow(text)),
    plain: out,
    event(event: RunEvent) {
      const render = renderers[event.type] as ((data: unknown) => string) | undefined;
      const text = render?.(event.data);
      if (text) out(text);
    },
    result(run: Run, diff: RunEventData['diff'] | null) {
      out(`\n${bold('Status')}   ${run.status === 'succeeded' ? green(run.status) : red(run.status)}`);
      if (run.failureMessage) out(`         ${run.failureMessage}`);
      if (run.resultSummary) out(`\n${bold('Answer')}\n${run.resultSummary}`);
      if (diff) {
        out(`\n${bold('Diff')}`);
        for (const line of diff.patch.trimEnd().split('\n')) {
          const colour = line.startsWith('+') ? green : line.startsWith('-') ? red : dim;
          out(colour(line));
        }
      }
      const usage = run.inferenceUsage;
      out(
        `\n${bold('Model')}    ${usage?.requests ?? 0} requests, ${usage?.inputTokens ?? 0} tokens in, ${usage?.outputTokens ?? 0} out, ${cost(usage?.costMicros ?? null)}`,
      );
    },
    egress(requests: readonly Entry[]) {
      out(`\n${bold('Outbound requests')}`);
      if (requests.length === 0) out(dim('  none'));
      for (const request of requests) {
        const verdict = request.decision === 'allowed' ? green('allowed') : red('denied ');
        const put = request.secrets.length > 0 ? `  put in: ${request.secrets.join(', ')}` : '';
        const why = request.reason ? `  ${request.reason}` : '';
        out(
          `  ${verdict} ${request.method ?? '-'} ${request.host}:${request.port}${request.path ?? ''} → ${request.status ?? '-'}${put}${why}`,
        );
      }
    },
  };
}
export type Presenter = ReturnType<typeof presenter>;
type Paint = (text: string) => string;

function commandOf(input: unknown): string | null {
  const command = (input as { command?: unknown } | null)?.command;
  if (typeof command !== 'string') return null;
  // Codex wraps what it runs in a login shell; people want to see the command.
  const wrapped = /^\/bin\/(?:ba)?sh -lc ([\s\S]+)$/.exec(command)?.[1];
  return wrapped === undefined ? command : unquoted(wrapped);
}

/** The text of one word of a shell, whose parts are in single or double quotes or in none. */
function unquoted(word: string): string {
  return word.replace(/'([^']*)'|"((?:\\.|[^"\\])*)"|\\([\s\S])/g, (_, single, double, escaped) =>
    single !== undefined ? single : double !== undefined ? double.replace(/\\(["\\$`])/g, '$1') : escaped,
  );
}

const cost = (micros: number | null): string =>
  micros === null ? 'price unknown' : `$${(micros / 1_000_000).toFixed(6)}`;
