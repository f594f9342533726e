import { afterEach, beforeEach, expect, test } from 'bun:test';
import { appendFile, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { openRawFile, rawFilePath } from '../../src/runner/rawfile.ts';

let directory = '';
beforeEach(async () => {
  directory = await mkdtemp(path.join(tmpdir(), 'slipway-raw-'));
});
afterEach(() => rm(directory, { recursive: true, force: true }));

test('lines are kept as they came, one file a turn', async () => {
  const file = await openRawFile(directory, 'run', 2);
  await file.append(['{"a":1}', 'not json']);
  await file.append(['ü']);
  await file.close();
  expect(await readFile(rawFilePath(directory, 'run', 2), 'utf8')).toBe('{"a":1}\nnot json\nü\n');
});

test('opening again goes on behind the last whole line and drops half a line', async () => {
  const first = await openRawFile(directory, 'run', 1);
  await first.append(['one', 'two']);
  await first.close();
  await appendFile(rawFilePath(directory, 'run', 1), 'thr');
  const again = await openRawFile(directory, 'run', 1);
  expect(again.lines).toBe(2);
  await again.append(['three']);
  await again.close();
  expect(await readFile(rawFilePath(directory, 'run', 1), 'utf8')).toBe('one\ntwo\nthree\n');
});
