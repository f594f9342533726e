import { dummyHarness } from '../../src/harness/dummy.ts';
import { harnessConformance } from './harness.ts';

const print = (lines: readonly object[]) => lines.map((line) => JSON.stringify(line));

harnessConformance(dummyHarness, [
  {
    name: 'a turn of the dummy',
    lines: print([
      { type: 'session', sessionId: 'dummy-session' },
      { type: 'message', text: 'I begin' },
      { type: 'tool', command: 'ls', output: 'a.txt\n', exitCode: 0 },
      { type: 'file', path: 'a.txt' },
      { type: 'message', text: 'Done' },
    ]),
    exitCode: 0,
    sessionId: 'dummy-session',
    events: [
      { type: 'message', data: { text: 'I begin' } },
      {
        type: 'tool_call',
        data: { callId: 'call_1', tool: 'shell', kind: 'command', server: null, input: { command: 'ls' } },
      },
      { type: 'tool_result', data: { callId: 'call_1', ok: true, output: 'a.txt\n', exitCode: 0 } },
      { type: 'file_change', data: { callId: null, ok: true, changes: [{ path: 'a.txt', kind: 'update' }] } },
      { type: 'message', data: { text: 'Done' } },
    ],
    conclusion: { ok: true, answer: 'Done', failure: null },
  },
  {
    name: 'a failure of the dummy',
    lines: print([
      { type: 'session', sessionId: 'dummy-session' },
      { type: 'error', message: 'unexpected status 401, url: http://127.0.0.1:3129/v1/responses' },
    ]),
    exitCode: 1,
    sessionId: 'dummy-session',
    events: [{ type: 'error', data: { message: 'unexpected status 401' } }],
    conclusion: {
      ok: false,
      answer: null,
      failure: { category: 'execution_failed', message: 'unexpected status 401' },
    },
  },
]);
