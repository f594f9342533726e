import { mkdir, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';

/** The name that the demo's status service has for the agent; it is served by the demo itself. */
export const statusHost = 'status.example.test';

const files: Readonly<Record<string, string>> = {
  'README.md': '# Receipts\n\nAdds up what is on a receipt. `node --test` runs the tests.\n',
  'package.json':
    '{\n  "name": "receipts",\n  "private": true,\n  "type": "module",\n  "scripts": { "test": "node --test" }\n}\n',
  'src/total.js': `/** The sum of a receipt in cents. */
export function total(lines) {
  return lines.reduce((sum, line) => sum + line.price, 0);
}
`,
  'test/total.test.js': `import assert from 'node:assert/strict';
import { test } from 'node:test';
import { total } from '../src/total.js';

test('an empty receipt costs nothing', () => {
  assert.equal(total([]), 0);
});

test('each line counts as often as it was bought', () => {
  assert.equal(total([{ price: 250, quantity: 3 }, { price: 100, quantity: 1 }]), 850);
});
`,
};

/** Makes a small git repository with a failing test in `directory`, anew, and answers its `file://` URL. */
export async function makeSampleRepository(directory: string): Promise<string> {
  await rm(directory, { recursive: true, force: true });
  for (const [name, content] of Object.entries(files)) {
    const file = path.join(directory, name);
    await mkdir(path.dirname(file), { recursive: true });
    await writeFile(file, content);
  }
  await git(directory, 'init', '--quiet', '--initial-branch', 'main');
  await git(directory, 'add', '--all');
  await git(directory, 'commit', '--quiet', '--message', 'Add up receipts');
  return `file://${directory}`;
}

async function git(directory: string, ...args: string[]): Promise<void> {
  const author = ['-c', 'user.name=Slipway', '-c', 'user.email=demo@slipway.invalid', '-c', 'commit.gpgSign=false'];
  const child = Bun.spawn(['git', ...author, ...args], { cwd: directory, stdout: 'ignore', stderr: 'pipe' });
  const [code, complaint] = await Promise.all([child.exited, new Response(child.stderr).text()]);
  if (code !== 0) throw new Error(`git ${args[0]} failed: ${complaint.trim()}`);
}
