import { codexCatalog, codexConfig, codexHome, codexKeyValue, codexKeyVariable } from './codex-config.ts';
import { codexReader } from './codex-reader.ts';
import type { Harness, HarnessLaunch, HarnessTurn } from './harness.ts';

const promptPath = '/state/turn/prompt.txt';

/**
 * Codex knows neither older nor foreign models and gives those no patch tool, so each turn tells it that its model is
 * like the one in the image's template, which the image's build took from codex itself. Model and session come as
 * arguments: they are data, never part of the script.
 */
const script = `set -eu
jq --arg model "$1" '(if has("models") then .models[0] else . end)
  | .slug = $model | .display_name = $model
  | .service_tiers = [] | .supports_search_tool = false | .support_verbosity = false
  | { models: [.] }' /opt/harness/codex/model.json > ${codexCatalog}
shift
exec codex exec "$@" < ${promptPath}`;

const options = ['--json', '--skip-git-repo-check', '--dangerously-bypass-approvals-and-sandbox'];

/** OpenAI's codex (0.169), run as `codex exec` with the prompt on its standard input. */
export function codexHarness(): Harness {
  return { id: 'codex', launch, reader: codexReader };
}

function launch(turn: HarnessTurn): HarnessLaunch {
  const args = turn.sessionId === null ? [...options, '-'] : ['resume', ...options, turn.sessionId, '-'];
  return {
    command: ['/bin/sh', '-c', script, 'sh', turn.model, ...args],
    environment: { CODEX_HOME: codexHome, [codexKeyVariable]: codexKeyValue },
    files: [
      { path: `${codexHome}/config.toml`, content: codexConfig(turn) },
      { path: promptPath, content: turn.prompt },
    ],
  };
}
