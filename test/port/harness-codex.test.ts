import { readFileSync } from 'node:fs';
import { codexHarness } from '../../src/harness/codex.ts';
import type { NewRunEvent } from '../../src/runs/schema.ts';
import { type HarnessFixture, harnessConformance } from './harness.ts';

const linesOf = (name: string) =>
  readFileSync(new URL(`../fixtures/harness/${name}.jsonl`, import.meta.url), 'utf8')
    .trim()
    .split('\n');

const message = (text: string): NewRunEvent => ({ type: 'message', data: { text } });
const warning = (text: string): NewRunEvent => ({ type: 'warning', data: { message: text } });
const error = (text: string): NewRunEvent => ({ type: 'error', data: { message: text } });
const thought = (text = '**Thinking** about the task'): NewRunEvent => ({ type: 'reasoning', data: { text } });
const command = (callId: string, line: string): NewRunEvent => ({
  type: 'tool_call',
  data: { callId, tool: 'shell', kind: 'command', server: null, input: { command: line } },
});
const result = (callId: string, output: string, exitCode: number | null): NewRunEvent => ({
  type: 'tool_result',
  data: { callId, ok: true, output, exitCode },
});
const added = (callId: string): NewRunEvent => ({
  type: 'file_change',
  data: { callId, ok: true, changes: [{ path: '/workspace/notes.md', kind: 'add' }] },
});

const greeting = "/bin/bash -lc 'echo hello-from-tool > hello.txt && cat hello.txt && uname -s'";
const greeted = 'hello-from-tool\nLinux\n';

const succeeded = (answer: string) => ({ ok: true, answer, failure: null });
const stopped = (answer: string | null) => ({
  ok: false,
  answer,
  failure: {
    category: 'execution_failed' as const,
    message: 'The agent program ended with exit status 143: look at the raw stream of the turn',
  },
});

const fixtures: HarnessFixture[] = [
  {
    name: 'codex-run2',
    lines: linesOf('codex-run2'),
    exitCode: 0,
    sessionId: '01a1fc77-d950-7a30-8fe0-eb62cce8c117',
    events: [
      thought(),
      message('I will call exec_command.'),
      command('item_2', greeting),
      result('item_2', greeted, 0),
      message('I will call apply_patch.'),
      added('item_4'),
      message('Final answer: done. users=2 results=2'),
    ],
    conclusion: succeeded('Final answer: done. users=2 results=2'),
  },
  {
    name: 'codex-resume',
    lines: linesOf('codex-resume'),
    exitCode: 0,
    sessionId: '01a1fc71-4748-7233-98a9-d9f42dd50d94',
    events: [
      warning(
        'Model metadata for `gpt-5.4` not found. Defaulting to fallback metadata; this can degrade performance and cause issues.',
      ),
      thought(),
      message('Final answer: done. users=3 results=1'),
    ],
    conclusion: succeeded('Final answer: done. users=3 results=1'),
  },
  {
    name: 'mcp-codex',
    lines: linesOf('mcp-codex'),
    exitCode: 0,
    sessionId: '01a1fc81-de3f-77c1-83db-a1ab0b8966f4',
    events: [
      thought(),
      message('I will call lookup.'),
      {
        type: 'tool_call',
        data: { callId: 'item_2', tool: 'lookup', kind: 'mcp', server: 'ctx', input: { query: 'checkout errors' } },
      },
      result('item_2', '3 checkout errors in the last hour', null),
      message('I will call apply_patch.'),
      added('item_4'),
      message('Final answer: done. users=2 results=2'),
    ],
    conclusion: succeeded('Final answer: done. users=2 results=2'),
  },
  {
    name: 'par-codex-anthropic',
    lines: linesOf('par-codex-anthropic'),
    exitCode: 0,
    sessionId: '01a1fc92-f05d-7d00-8359-ae78c6504c42',
    events: [
      thought('Thinking about the task'),
      message('I will call exec_command.'),
      command('item_2', greeting),
      result('item_2', greeted, 0),
      command('item_3', greeting),
      result('item_3', greeted, 0),
      message('I will call apply_patch.'),
      added('item_5'),
      message('Final answer: done. users=1 results=2'),
    ],
    conclusion: succeeded('Final answer: done. users=1 results=2'),
  },
  {
    name: 'f-codex-401',
    lines: linesOf('f-codex-401'),
    exitCode: 1,
    sessionId: '01a1fc7d-ab53-7760-a000-76d224a817cd',
    events: [
      warning('Reconnecting... 1/2 (unexpected status 401 Unauthorized: Incorrect API key provided: [key])'),
      warning('Reconnecting... 2/2 (unexpected status 401 Unauthorized: Incorrect API key provided: [key])'),
      error('unexpected status 401 Unauthorized: Incorrect API key provided: [key]'),
    ],
    conclusion: {
      ok: false,
      answer: null,
      failure: {
        category: 'model_authentication_failed',
        message: 'The model provider refused the API key: check the model credential',
      },
    },
  },
  {
    name: 'f-codex-hang-stop',
    lines: linesOf('f-codex-hang-stop'),
    exitCode: 143,
    sessionId: '01a1fc7d-d720-7373-bde8-2a1b0bb03a79',
    events: [thought()],
    conclusion: stopped(null),
  },
  {
    name: 'f-codex-sleep-stop',
    lines: linesOf('f-codex-sleep-stop'),
    exitCode: 143,
    sessionId: '01a1fc7d-b740-7472-a192-2179c08697ed',
    events: [thought(), message('I will call exec_command.'), command('item_2', "/bin/bash -lc 'sleep 300'")],
    conclusion: stopped('I will call exec_command.'),
  },
];

harnessConformance(codexHarness, fixtures);
