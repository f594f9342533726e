import { describe, expect, test } from 'bun:test';
import { problemOf, sentenceOf } from '../../src/integrations/git-problem.ts';
import { branchesOf, readAdvertised, readRefs, sameRefs, tipOf } from '../../src/integrations/git-refs.ts';

const a = 'a'.repeat(40);
const b = 'b'.repeat(40);
const lines = (...pairs: [string, string][]) => pairs.map((pair) => `${pair.join('\t')}\n`).join('');

describe('the default branch of an origin', () => {
  test.each([
    [
      'is what HEAD names',
      lines(['ref: refs/heads/trunk', 'HEAD'], [a, 'HEAD'], [b, 'refs/heads/main'], [a, 'refs/heads/trunk']),
      'trunk',
    ],
    ['is the branch at a detached HEAD', lines([a, 'HEAD'], [b, 'refs/heads/main'], [a, 'refs/heads/work']), 'work'],
    [
      'is main where several are at a detached HEAD',
      lines([a, 'HEAD'], [a, 'refs/heads/a'], [a, 'refs/heads/main']),
      'main',
    ],
    ['is the only branch where HEAD names none', lines([a, 'refs/heads/work'], [b, 'refs/tags/v1']), 'work'],
    ['is not guessed among several', lines([a, 'refs/heads/x'], [b, 'refs/heads/y']), null],
    ['is none at a detached HEAD without a branch', lines([a, 'HEAD'], [b, 'refs/heads/main']), null],
    ['is none in an empty repository', '', null],
  ])('%s', (_, output, head) => {
    expect(readAdvertised(output).head).toBe(head);
  });
});

describe('refs', () => {
  test('are branches and tags, without peeled tags and pull requests', () => {
    const { refs } = readAdvertised(
      lines(
        [a, 'refs/heads/main'],
        [b, 'refs/tags/v1'],
        [a, 'refs/tags/v1^{}'],
        [a, 'refs/pull/1/head'],
        ['x', 'refs/heads/y'],
      ),
    );
    expect([...refs.keys()]).toEqual(['refs/heads/main', 'refs/tags/v1']);
    expect(tipOf(refs, 'main')).toBe(a);
    expect(branchesOf(refs)).toEqual([['main', a]]);
  });

  test('compare by name and object, whatever their order', () => {
    const refs = readRefs(`${a} refs/heads/x\n${b} refs/heads/y\n`);
    expect(sameRefs(refs, readRefs(`${b} refs/heads/y\n${a} refs/heads/x\n`))).toBe(true);
    expect(sameRefs(refs, readRefs(`${a} refs/heads/x\n`))).toBe(false);
    expect(sameRefs(refs, readRefs(`${a} refs/heads/x\n${a} refs/heads/y\n`))).toBe(false);
  });
});

describe("git's complaint", () => {
  test.each([
    ["fatal: could not read Username for 'https://h': terminal prompts disabled", 'refused'],
    ["fatal: Authentication failed for 'https://h/o/r/'", 'refused'],
    ["fatal: unable to access 'https://h/o/r/': The requested URL returned error: 403", 'refused'],
    ["remote: Repository not found.\nfatal: repository 'https://h/o/r/' not found", 'not_found'],
    [
      "fatal: '/srv/x' does not appear to be a git repository\nfatal: Could not read from remote repository.",
      'not_found',
    ],
    ["fatal: unable to access 'https://h/o/r/': Could not resolve host: h", 'unreachable'],
    ["fatal: unable to access 'https://h/o/r/': Failed to connect to h port 443: Connection refused", 'unreachable'],
    [
      "fatal: unable to access 'https://h/o/r/': server certificate verification failed. CAfile: none",
      'untrusted_certificate',
    ],
    ["fatal: unable to access 'https://h/o/r/': The requested URL returned error: 301", 'redirected'],
    ['fatal: write error: No space left on device', 'disk_full'],
    ["error: cannot open '/srv/x/HEAD': Permission denied", 'unreadable'],
    ['fatal: bad object 1234', 'other'],
  ])('%p is understood as %s', (text, problem) => {
    const found: string = problemOf(text);
    expect(found).toBe(problem);
    expect(sentenceOf(problemOf(text), 'octo/demo', false)).not.toMatch(/https:|\/srv/);
  });
});
