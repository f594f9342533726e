import { describe, expect, test } from 'bun:test';
import type { EgressSecret, HostPolicy } from '../../src/egress/egress.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { type ChangeNeeds, followChanges } from '../../src/runner/changes.ts';
import { type TurnPlan, withRepositories } from '../../src/runner/plan.ts';
import { createLive } from '../../src/runs/live.ts';
import type { StoredRun } from '../../src/runs/row.ts';

const secret = (name: string, value: string, placeholder = `ph_${name}`): EgressSecret => ({
  name,
  value,
  placeholder,
  allowedHosts: ['a.example'],
  surfaces: ['headers'],
});
const closed: HostPolicy = { default: 'deny', hosts: [] };
const cloneUrl = 'https://git.example/demo.git';

/** A run with one secret and one repository with a token, the database behind it, and what its door was told. */
function follow(everyMs = 1_000_000) {
  const database = {
    secrets: [secret('API', 'one')],
    tokens: [secret('git:demo', 'token')],
    policies: [{ default: 'allow', hosts: [] }] as HostPolicy[],
    broken: false,
    reads: 0,
  };
  const live = createLive();
  const needs: ChangeNeeds = {
    live,
    log: silentLog,
    async secrets(_, ids) {
      database.reads += 1;
      if (database.broken) throw new Error('disk');
      expect(ids).toEqual(['s1']);
      return [...database.secrets];
    },
    gitCredentials: async () =>
      database.tokens.map((token) => ({ cloneUrl, username: 'x', placeholder: token.placeholder, secret: token })),
    repositories: async () => [],
    policies: async () => [...database.policies],
  };
  const plan = {
    configuration: { workspaceSecretIds: ['s1'], repositoryIds: ['r1'] },
    gitCredentials: [{ cloneUrl, username: 'x', placeholder: 'ph_git:demo' }],
    substitutions: [...database.secrets, ...database.tokens],
    policies: [...database.policies],
  } as unknown as TurnPlan;
  const told: string[] = [];
  const changes: { secrets: readonly EgressSecret[]; policies: readonly HostPolicy[] }[] = [];
  const updated = Promise.withResolvers<void>();
  const following = followChanges(
    needs,
    { id: 'run', workspaceId: 'w' } as StoredRun,
    plan,
    {
      update(change) {
        told.push('door');
        changes.push({ secrets: change.secrets ?? [], policies: change.policies ?? [] });
        updated.resolve();
      },
    },
    { learn: (more) => told.push(`learnt ${more.map(({ value }) => value)}`) },
    everyMs,
  );
  return { database, live, following, told, changes, updated: updated.promise };
}

describe('the door of an open run', () => {
  test('goes by a change when its announcement has been heard, after the transcript has learnt the value', async () => {
    const at = follow();
    at.database.secrets = [secret('API', 'two')];
    at.database.policies = [closed];
    await at.live.announceEgress('w');
    expect(at.told).toEqual(['learnt two,token', 'door']);
    expect(at.changes).toEqual([{ secrets: [secret('API', 'two'), secret('git:demo', 'token')], policies: [closed] }]);
    at.following.stop();
  });

  test('is left alone where nothing has changed, or another workspace has', async () => {
    const at = follow();
    await at.live.announceEgress('w');
    at.database.secrets = [];
    await at.live.announceEgress('elsewhere');
    expect(at.told).toEqual([]);
    at.following.stop();
  });

  test('keeps the placeholder of git when its token is given anew with another one', async () => {
    const at = follow();
    at.database.tokens = [secret('git:demo', 'renewed', 'ph_other')];
    await at.following.look();
    expect(at.changes[0]?.secrets).toEqual([secret('API', 'one'), secret('git:demo', 'renewed')]);
    at.following.stop();
  });

  test('has no value any more while they cannot be read, and has them again afterwards', async () => {
    const at = follow();
    at.database.broken = true;
    await at.live.announceEgress('w');
    at.database.broken = false;
    await at.following.look();
    expect(at.changes.map(({ secrets }) => secrets.length)).toEqual([0, 2]);
    at.following.stop();
  });

  test('ends with what was read last when changes come at once', async () => {
    const at = follow();
    const both = ['two', 'three'].map((value) => {
      at.database.secrets = [secret('API', value)];
      return at.live.announceEgress('w');
    });
    await Promise.all(both);
    expect(at.changes.at(-1)?.secrets[0]?.value).toBe('three');
    at.following.stop();
  });

  test('hears of what another process has changed, by looking', async () => {
    const at = follow(1);
    at.database.secrets = [];
    await at.updated;
    expect(at.changes[0]?.secrets).toEqual([secret('git:demo', 'token')]);
    at.following.stop();
  });

  test('is told nothing after the end of the run', async () => {
    const at = follow();
    at.database.secrets = [];
    const looking = at.live.announceEgress('w');
    at.following.stop();
    await looking;
    await at.live.announceEgress('w');
    await at.following.look();
    expect(at.told).toEqual([]);
  });
});

test.each<[string, HostPolicy, HostPolicy]>([
  [
    'a closed list',
    { default: 'deny', hosts: ['a.b'] },
    { default: 'deny', hosts: ['a.b', 'git.example', '10.0.0.1'] },
  ],
  [
    'a closed list that has it',
    { default: 'deny', hosts: ['git.example', '10.0.0.1'] },
    { default: 'deny', hosts: ['git.example', '10.0.0.1'] },
  ],
  ['an open list', { default: 'allow', hosts: ['git.example'] }, { default: 'allow', hosts: ['git.example'] }],
])("%s allows the hosts of the run's repositories only where it is closed", (_, policy, wanted) => {
  const urls = [cloneUrl, 'http://10.0.0.1:3000/x.git', 'file:///srv/x.git', 'https://git.example/other.git'];
  expect(
    withRepositories(
      [policy],
      urls.map((url) => ({ cloneUrl: url })),
    ),
  ).toEqual([wanted]);
});
