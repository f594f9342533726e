import { describe, expect, test } from 'bun:test';
import { codexHarness } from '../../src/harness/codex.ts';
import { codexReader } from '../../src/harness/codex-reader.ts';
import { maxFieldLength } from '../../src/harness/event-text.ts';
import type { HarnessTurn } from '../../src/harness/harness.ts';
import type { NewRunEvent } from '../../src/runs/schema.ts';

const turn: HarnessTurn = {
  prompt: 'Mend the test',
  systemPrompt: 'Rules: "quoted", back\\slash,\nnew line, tab\t, delete \u007f, bell \u0007, €, 😀, """ and \'\'\'',
  model: 'gpt-5.4',
  provider: 'openai',
  maxOutputTokens: 32_000,
  sessionId: null,
  gatewayUrl: 'http://127.0.0.1:3129',
  workingDirectory: '/workspace/repository',
};

function configOf(given: Partial<HarnessTurn>): Record<string, unknown> {
  const { files } = codexHarness().launch({ ...turn, ...given });
  const file = files.find((each) => each.path === '/state/codex/config.toml');
  return Bun.TOML.parse(file?.content ?? '') as Record<string, unknown>;
}

describe('codex launch', () => {
  test('writes a config that reads back as what was asked, whatever the system prompt holds', () => {
    const config = configOf({});
    expect(config.developer_instructions).toBe(turn.systemPrompt);
    expect(config.model).toBe('gpt-5.4');
    expect(config.model_providers).toMatchObject({
      slipway: { base_url: 'http://127.0.0.1:3129/v1', wire_api: 'responses', env_key: 'SLIPWAY_GATEWAY_KEY' },
    });
  });

  test('replaces lone surrogates, which TOML does not know', () => {
    expect(configOf({ systemPrompt: 'a\ud800b' }).developer_instructions).toBe('a\ufffdb');
  });

  test('cannot be made to set anything else by a model name or a system prompt', () => {
    const config = configOf({ model: 'x"\napproval_policy = "always"\n[y]', systemPrompt: '"\n[model_providers.z]\n' });
    expect(config.approval_policy).toBe('never');
    expect(Object.keys(config.model_providers as object)).toEqual(['slipway']);
  });

  test('passes model and session as arguments, never as part of the script', () => {
    const { command } = codexHarness().launch({ ...turn, model: '$(touch /tmp/x)', sessionId: '; touch /tmp/x' });
    expect(command.slice(0, 2)).toEqual(['/bin/sh', '-c']);
    expect(command[2]).not.toContain('touch');
    expect(command.slice(3, 6)).toEqual(['sh', '$(touch /tmp/x)', 'resume']);
    expect(command.slice(-2)).toEqual(['; touch /tmp/x', '-']);
  });

  test('gives the container no credential', () => {
    expect(codexHarness().launch(turn).environment).toEqual({
      CODEX_HOME: '/state/codex',
      SLIPWAY_GATEWAY_KEY: 'not-a-key',
    });
  });
});

describe('codex reader', () => {
  const read = (...lines: unknown[]): NewRunEvent[] => {
    const reader = codexReader();
    return lines
      .flatMap((line) => reader.read(typeof line === 'string' ? line : JSON.stringify(line)))
      .flatMap((signal) => (signal.kind === 'event' ? [signal.event] : []));
  };
  const item = (type: string, data: object, phase = 'completed') => ({
    type: `item.${phase}`,
    item: { id: 'item_1', type, ...data },
  });

  test('a command whose start was missed is told as call and result', () => {
    const events = read(
      item('command_execution', { command: 'ls', aggregated_output: 'a', exit_code: 2, status: 'failed' }),
    );
    expect(events).toEqual([
      {
        type: 'tool_call',
        data: { callId: 'item_1', tool: 'shell', kind: 'command', server: null, input: { command: 'ls' } },
      },
      { type: 'tool_result', data: { callId: 'item_1', ok: false, output: 'a', exitCode: 2 } },
    ]);
  });

  test('a refused tool of a context server is told with its error', () => {
    const events = read(item('mcp_tool_call', { server: 's', tool: 't', error: { message: 'no' }, status: 'failed' }));
    expect(events[1]).toEqual({
      type: 'tool_result',
      data: { callId: 'item_1', ok: false, output: 'no', exitCode: null },
    });
  });

  test('each version of the plan is told once', () => {
    const plan = (completed: boolean) => ({ items: [{ text: 'look', completed }] });
    const events = read(
      item('todo_list', plan(false), 'started'),
      item('todo_list', plan(true), 'updated'),
      item('todo_list', plan(true)),
    );
    expect(events.map((event) => event.type)).toEqual(['tool_call', 'tool_result', 'tool_call', 'tool_result']);
    expect(events[2]?.data).toMatchObject({ tool: 'todo_list', kind: 'other', input: plan(true) });
  });

  test('a web search is told when its query is known', () => {
    const events = read(item('web_search', { query: '' }, 'started'), item('web_search', { query: 'bun toml' }));
    expect(events[0]?.data).toMatchObject({ tool: 'web_search', kind: 'web', input: { query: 'bun toml' } });
    expect(events).toHaveLength(2);
  });

  test('token counts, unknown events, unknown items and blank lines are nothing', () => {
    const usage = { input_tokens: 1, output_tokens: 2 };
    expect(read({ type: 'turn.completed', usage }, { type: 'new.thing' }, item('new_item', {}), '', '  ')).toEqual([]);
  });

  test('a huge output is cut and says by how much', () => {
    const aggregated_output = 'x'.repeat(maxFieldLength + 42);
    const [, result] = read(
      item('command_execution', { command: 'c', aggregated_output, exit_code: 0, status: 'completed' }),
    );
    if (result?.type !== 'tool_result') throw new Error('A result was expected');
    expect(result.data.output).toEndWith('x\n[cut: 42 more characters are in the raw stream]');
    expect(result.data.output.length).toBeLessThan(maxFieldLength + 100);
  });

  test('a huge argument is cut and stays a value', () => {
    const [call] = read(
      item('mcp_tool_call', { server: 's', tool: 't', arguments: { deep: ['y'.repeat(maxFieldLength)] } }),
    );
    if (call?.type !== 'tool_call') throw new Error('A call was expected');
    expect(JSON.stringify(call.data.input).length).toBeLessThan(maxFieldLength + 200);
  });

  test('a session id that could be taken for an option is not taken', () => {
    expect(codexReader().read(JSON.stringify({ type: 'thread.started', thread_id: '--last' }))).toEqual([]);
  });
});
