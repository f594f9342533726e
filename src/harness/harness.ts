import type { FailureCategory, NewRunEvent } from '../runs/schema.ts';

/**
 * The harness port: one agent program, as a command line, the files it wants, and the meaning of what it prints.
 * An adapter is pure: it starts nothing and reads no file.
 *
 * Protocol: `launch` describes one turn; the runner starts it in a sandbox and gives each line of standard output to
 * one `reader()` in order. A line that is malformed or of an unknown kind yields nothing or a `warning`, it never
 * throws: the raw stream is kept anyway. After the last line, `conclude` says how the program itself saw the end.
 */
export interface Harness {
  readonly id: HarnessId;
  launch(turn: HarnessTurn): HarnessLaunch;
  reader(): HarnessReader;
}

export type HarnessId = 'codex' | 'claude_agent_sdk' | 'opencode' | 'dummy';

export interface HarnessTurn {
  /** What the agent is to do in this turn; it goes in by standard input, for an argument holds 128 KiB at most. */
  readonly prompt: string;
  /** What always holds: rules of the sandbox, the repositories' places, the secrets' names. */
  readonly systemPrompt: string;
  readonly model: string;
  readonly provider: string;
  readonly maxOutputTokens: number;
  /** The session to continue, as an earlier turn reported it; null on the first turn. */
  readonly sessionId: string | null;
  /** Base URL of the model gateway inside the sandbox, without a path: `http://127.0.0.1:3129`. */
  readonly gatewayUrl: string;
  readonly workingDirectory: string;
}

export interface HarnessLaunch {
  readonly command: readonly string[];
  readonly environment: Readonly<Record<string, string>>;
  readonly files: readonly { path: string; content: string; mode?: number }[];
}

export interface HarnessReader {
  /** The meaning of one line, in order. */
  read(line: string): readonly HarnessSignal[];
  /** After the last line: the final answer, and the last error that the program reported as fatal. */
  conclude(exitCode: number): HarnessConclusion;
}

export type HarnessSignal =
  | { readonly kind: 'event'; readonly event: NewRunEvent }
  | { readonly kind: 'session'; readonly sessionId: string };

export interface HarnessConclusion {
  readonly ok: boolean;
  /** The agent's final answer in this turn, null when there was none. */
  readonly answer: string | null;
  /** Set when `ok` is false. The gateway's own record comes before it. */
  readonly failure: { readonly category: FailureCategory; readonly message: string } | null;
}
