import type { CheckedOut } from '../runs/row.ts';
import type { RunEventData } from '../runs/schema.ts';
import type { Sandbox } from '../sandbox/sandbox.ts';
import { places } from './places.ts';

/** A patch beyond this is cut at a line; the list of files stays whole. */
export const mostPatchBytes = 1024 * 1024;

const timeoutMs = 120_000;
const border = '---patch---';

/**
 * Runs in the sandbox, for the repository's own settings are the agent's: nothing that they make git do matters there.
 * Each repository is compared with the commit that was checked out, through an index of our own, so that new files and
 * the agent's commits count and the agent's index stays as it is. It begins as a copy of the agent's, which knows what
 * was not touched: with the time of the original, by which git tells what may have changed in the same instant, and
 * without the marks that make git look away. Files beside the repositories are compared with nothing. Arguments: pairs
 * of a directory and its commit.
 */
const script = `
set -u
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 GIT_OPTIONAL_LOCKS=0 LC_ALL=C
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
git init --quiet --bare "$work/outside.git" || exit 1
: > "$work/stat"; : > "$work/patch"
compare() {
  git -c core.fsmonitor=false -c core.quotePath=false "$@" --numstat --no-renames >> "$work/stat" 2>> "$work/errors" || return 1
  git -c core.fsmonitor=false -c core.quotePath=false "$@" --patch --no-renames --src-prefix="a/$prefix" --dst-prefix="b/$prefix" >> "$work/patch" 2>> "$work/errors"
}
several=$(( $# > 3 ))
while [ $# -gt 1 ]; do
  name=\${1##*/}
  echo "/$name/" >> "$work/outside.git/info/exclude"
  prefix=''; [ "$several" = 1 ] && prefix="$name/"
  if cd "$1"; then
    export GIT_INDEX_FILE="$work/index"
    rm -f "$GIT_INDEX_FILE"
    cp -p .git/index "$GIT_INDEX_FILE" 2>/dev/null
    if git -c core.fsmonitor=false ls-files -z > "$work/known" 2>/dev/null; then
      for bit in assume-unchanged skip-worktree; do
        git -c core.fsmonitor=false update-index -z --no-$bit --stdin < "$work/known" 2>> "$work/errors"
      done
    else
      rm -f "$GIT_INDEX_FILE"
    fi
    [ -f "$GIT_INDEX_FILE" ] || git read-tree "$2" 2>> "$work/errors"
    git -c core.fsmonitor=false -c advice.addEmbeddedRepo=false add -A -- . 2>> "$work/errors" || echo failed >> "$work/failed"
    relative=''; [ "$several" = 1 ] && relative="$name"
    before=$(wc -l < "$work/stat")
    compare diff --cached --no-color --no-ext-diff --no-textconv "$2" || echo failed >> "$work/failed"
    if [ -n "$relative" ]; then
      awk -F '\\t' -v OFS='\\t' -v from="$before" -v d="$relative/" 'NR > from { $3 = d $3 } { print }' "$work/stat" > "$work/named" && mv "$work/named" "$work/stat"
    fi
    unset GIT_INDEX_FILE
  else
    echo failed >> "$work/failed"
  fi
  shift 2
done
cd "$1" && export GIT_DIR="$work/outside.git" GIT_WORK_TREE="$1" && prefix='' &&
  git add -A -- . 2>> "$work/errors" &&
  compare diff --cached --no-color "$(git hash-object -t tree --stdin < /dev/null -w)" || echo failed >> "$work/failed"
cat "$work/stat"
echo '${border}'
cat "$work/patch"
[ ! -s "$work/failed" ]
`;

export interface WorkspaceDiff {
  readonly diff: RunEventData['diff'];
  /** False when a part could not be compared: the agent removed a repository, or the disk is full. */
  readonly whole: boolean;
}

/** Compares the run's workspace with what was checked out. Throws `SandboxFailure`. */
export async function diffWorkspace(
  sandbox: Sandbox,
  runId: string,
  checkouts: readonly CheckedOut[],
): Promise<WorkspaceDiff> {
  const pairs = checkouts.flatMap(({ path, commit }) => [path, commit]);
  const result = await sandbox.inspect({
    runId,
    command: ['/bin/sh', '-c', script, 'diff', ...pairs, places.workspace],
    workingDirectory: places.workspace,
    maxOutputBytes: 4 * mostPatchBytes,
    timeoutMs,
  });
  return readDiff(new TextDecoder().decode(result.output), result.cut, result.code === 0);
}

/** Reads what the script prints: the statistics, the border, the patch. */
export function readDiff(output: string, cut: boolean, whole: boolean): WorkspaceDiff {
  const at = output.startsWith(`${border}\n`) ? 0 : output.indexOf(`\n${border}\n`) + 1;
  const found = at > 0 || output.startsWith(border);
  const stat = found ? output.slice(0, at) : output;
  const patch = found ? output.slice(at + border.length + 1) : '';
  const tooLong = patch.length > mostPatchBytes;
  const kept = tooLong || cut ? patch.slice(0, patch.lastIndexOf('\n', mostPatchBytes) + 1) : patch;
  return { diff: { files: stat.split('\n').flatMap(readStat), patch: kept, truncated: tooLong || cut }, whole };
}

/** `additions TAB deletions TAB path`, where binary files have `-` for both. */
function readStat(line: string): RunEventData['diff']['files'] {
  const match = /^(\d+|-)\t(\d+|-)\t(.+)$/.exec(line);
  if (!match) return [];
  const [, additions = '-', deletions = '-', path = ''] = match;
  const count = (text: string) => (text === '-' ? null : Number(text));
  return [{ path, additions: count(additions), deletions: count(deletions) }];
}
