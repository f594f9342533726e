import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import { silentLog } from '../../src/kernel/log.ts';
import { dockerSandbox } from '../../src/sandbox/docker.ts';
import { imageReference } from '../../src/sandbox/image.ts';
import type { Sandbox } from '../../src/sandbox/sandbox.ts';
import { linesOf, openRun } from '../port/sandbox-run.ts';

const limits = { memoryBytes: 128 * 1024 * 1024, cpus: 1, processes: 64 };
const timeoutMs = 60_000;

const tools = 'git curl rg jq python3 pip3 node npm npx cc make unzip xz codex';

describe('the image of the sandbox', () => {
  let sandbox: Sandbox;
  beforeAll(() => {
    const installation = `test-${crypto.randomUUID().slice(0, 8)}`;
    sandbox = dockerSandbox({ dockerHost: null, image: imageReference(), installation, log: silentLog });
  });
  afterAll(() => sandbox.close());

  /** Runs a script as the agent, to its end. */
  const open = (script: string) =>
    openRun({
      sandbox,
      reopen: async () => sandbox,
      program: () => ({ command: ['/bin/bash', '-c', script], files: [] }),
      spec: (asked) => ({ ...asked, limits }),
      dispose: async () => {},
    });

  async function printedBy(script: string): Promise<string[]> {
    await using run = await open(script);
    const process = await run.ended({ kind: 'hello' });
    expect(await process.diagnostics()).toBe('');
    return await linesOf(process);
  }

  test(
    'has the tools of a developer, and they work on a file system that is read only',
    async () => {
      const script = `
        for tool in ${tools}; do command -v $tool > /dev/null || echo "no $tool"; done
        python3 -m venv --without-pip /tmp/venv && /tmp/venv/bin/python -c 'print("python")'
        echo 'int main() { return 7; }' > /tmp/a.c && cc /tmp/a.c -o /tmp/a && { /tmp/a; echo "compiled $?"; }
        cd /tmp && npm init --yes > /dev/null && node --print 'require("./package.json").version'`;
      expect(await printedBy(script)).toEqual(['python', 'compiled 7', '1.0.0']);
    },
    timeoutMs,
  );

  test(
    'has a program of codex, and its entry for a model to make others of',
    async () => {
      const script = "codex --version; jq --raw-output '.slug, .apply_patch_tool_type' /opt/harness/codex/model.json";
      expect(await printedBy(script)).toEqual([expect.stringMatching(/^codex-cli \d/), 'gpt-5.5', 'freeform']);
    },
    timeoutMs,
  );

  test(
    'shows clients the certificate of the installation beside those of the system',
    async () => {
      const script = `
        system=$(grep -c 'BEGIN CERTIFICATE' /opt/slipway/system-ca.crt)
        for bundle in "$SSL_CERT_FILE" /etc/ssl/certs/ca-certificates.crt; do
          echo "$(($(grep -c 'BEGIN CERTIFICATE' "$bundle") - system)) more"
          tail -n "$(wc -l < "$NODE_EXTRA_CA_CERTS")" "$bundle" | cmp - "$NODE_EXTRA_CA_CERTS" && echo 'ours at the end'
        done`;
      expect(await printedBy(script)).toEqual(['1 more', 'ours at the end', '1 more', 'ours at the end']);
    },
    timeoutMs,
  );

  test(
    'tells the agent of no name server that the engine knows',
    async () => {
      expect(await printedBy("grep -v '^#' /etc/resolv.conf")).toEqual(['nameserver 127.0.0.1']);
    },
    timeoutMs,
  );

  test(
    'lets an agent live on whose child was killed for the memory limit, and it is told',
    async () => {
      await using run = await open("python3 -c 'bytearray(400 << 20)' 2> /dev/null; echo child $?");
      const process = await run.ended({ kind: 'hello' });
      expect(await process.exit).toMatchObject({ code: 0, outOfMemory: true });
      expect(await linesOf(process)).toEqual(['child 137']);
    },
    timeoutMs,
  );

  test(
    'says in one line that there is no such program, and ends with 127',
    async () => {
      await using run = await openRun({
        sandbox,
        reopen: async () => sandbox,
        program: () => ({ command: ['no-such-program', 'x'], files: [] }),
        spec: (asked) => ({ ...asked, limits }),
        dispose: async () => {},
      });
      const process = await run.ended({ kind: 'hello' });
      expect((await process.exit).code).toBe(127);
      expect(await process.diagnostics()).toBe('no-such-program: No such file or directory\n');
    },
    timeoutMs,
  );
});
