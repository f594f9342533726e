import type { HarnessTurn } from './harness.ts';

/** Where codex keeps its settings and sessions inside the sandbox: the volume that follow-ups see again. */
export const codexHome = '/state/codex';
export const codexCatalog = `${codexHome}/models.json`;

/** Codex wants a variable that holds a key. No key exists inside: the gateway knows the run by its socket. */
export const codexKeyVariable = 'SLIPWAY_GATEWAY_KEY';
export const codexKeyValue = 'not-a-key';

/**
 * Features that need OpenAI's own services, reach for the internet, or have no meaning without a person at a screen.
 * Request compression is off because the gateway reads the requests.
 */
const featuresOff = [
  'multi_agent_v2',
  'goals',
  'image_generation',
  'apps',
  'plugins',
  'remote_plugin',
  'plugin_sharing',
  'hooks',
  'skill_search',
  'skill_mcp_dependency_install',
  'browser_use',
  'browser_use_external',
  'computer_use',
  'in_app_browser',
  'in_app_chat',
  'tool_suggest',
  'shell_snapshot',
  'enable_request_compression',
  'unbounded_connection_retries',
  'sleep_tool',
  'workspace_dependencies',
  'code_mode_host',
];

/** The text of `config.toml` for one turn; codex 0.169 takes every line of it under `--strict-config`. */
export function codexConfig(turn: HarnessTurn): string {
  return Bun.TOML.stringify({
    model: turn.model,
    model_provider: 'slipway',
    model_catalog_json: codexCatalog,
    // The container is the sandbox: codex's own would need privileges that it does not have there.
    approval_policy: 'never',
    sandbox_mode: 'danger-full-access',
    check_for_update_on_startup: false,
    web_search: 'disabled',
    developer_instructions: turn.systemPrompt,
    project_doc_max_bytes: 32768,
    features: Object.fromEntries(featuresOff.map((feature) => [feature, false])),
    agents: { enabled: false },
    model_providers: {
      slipway: {
        name: 'gateway',
        base_url: `${turn.gatewayUrl}/v1`,
        env_key: codexKeyVariable,
        wire_api: 'responses',
        // A failing provider costs (2 + 1) times (2 + 1) requests, all of them counted for the run.
        request_max_retries: 2,
        stream_max_retries: 2,
        stream_idle_timeout_ms: 300_000,
        supports_websockets: false,
      },
    },
    analytics: { enabled: false },
    feedback: { enabled: false },
    otel: { exporter: 'none', metrics_exporter: 'none', trace_exporter: 'none' },
    skills: { bundled: { enabled: false } },
    history: { persistence: 'none' },
  });
}
