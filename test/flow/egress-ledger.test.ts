import { expect, test } from 'bun:test';
import type { Database } from '../../src/db/database.ts';
import type { EgressRequest } from '../../src/egress/egress.ts';
import { ledgerStore } from '../../src/egress/store.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { testDatabase } from '../support/database.ts';

const request = (over: Partial<EgressRequest> = {}): EgressRequest => ({
  at: 1000,
  host: 'api.test',
  port: 443,
  method: 'GET',
  path: '/',
  status: 200,
  bytesUp: 1,
  bytesDown: 2,
  durationMs: 3.4,
  secrets: ['A'],
  decision: 'allowed',
  reason: null,
  ...over,
});

async function addRun(database: Database, id: string): Promise<void> {
  await database.write(async (tx) => {
    await tx.run("INSERT INTO organisations VALUES ('o', 'O', 1) ON CONFLICT DO NOTHING");
    await tx.run("INSERT INTO workspaces VALUES ('w', 'o', 'W', 'w', 1) ON CONFLICT DO NOTHING");
    await tx.run("INSERT INTO automations VALUES ('a', 'w', 'A', '', 1, 1, 0, 1, 1) ON CONFLICT DO NOTHING");
    await tx.run(
      `INSERT INTO runs (id, workspace_id, automation_id, automation_version, number, status, turn, trigger_provider,
         trigger_title, trigger_attributes, queued_at, created_at)
       VALUES (?, 'w', 'a', 1, (SELECT COUNT(*) + 1 FROM runs), 'running', 1, 'manual', '', '{}', 1, 1)`,
      id,
    );
  });
}

test('what was recorded is listed at once, oldest first, page by page, for its own run only', async () => {
  await using database = await testDatabase();
  await addRun(database, 'r1');
  await addRun(database, 'r2');
  const ledger = ledgerStore(database, silentLog);
  for (let at = 1; at <= 5; at++) await ledger.record('r1', 1, request({ at, path: `/${at}` }));
  const denied = request({ at: 6, method: null, path: null, status: null, decision: 'denied', reason: 'No.' });
  await ledger.record('r1', 2, denied);
  await ledger.record('r2', 1, request({ secrets: [] }));
  const second = await ledger.list('r1', { page: 2, pageSize: 4 });
  expect(second.total).toBe(6);
  expect(second.requests).toEqual([
    { ...request({ at: 5, path: '/5', durationMs: 3 }), id: expect.any(String), turn: 1 },
    { ...denied, durationMs: 3, id: expect.any(String), turn: 2 },
  ]);
  await ledger.close();
});

test('closing writes thousands of waiting requests, none lost', async () => {
  await using database = await testDatabase();
  await addRun(database, 'r1');
  const ledger = ledgerStore(database, silentLog);
  let waits = 0;
  for (let at = 0; at < 6000; at++) {
    const full = ledger.record('r1', 1, request({ at }));
    if (full) waits += 1;
  }
  expect(waits).toBeGreaterThan(0);
  await ledger.close();
  expect(await database.one('SELECT COUNT(*) AS total FROM egress_requests')).toEqual({ total: 6000 });
});

test('a failing database loses nothing, and a run that is gone holds up no other', async () => {
  await using database = await testDatabase();
  await addRun(database, 'r1');
  let broken = true;
  const flaky: Database = {
    ...database,
    write: (work) => (broken ? Promise.reject(new Error('disk full')) : database.write(work)),
  };
  const ledger = ledgerStore(flaky, silentLog);
  await ledger.record('gone', 1, request());
  await ledger.record('r1', 1, request());
  await expect(ledger.flush()).rejects.toThrow('disk full');
  broken = false;
  await ledger.close();
  expect(await database.all('SELECT run_id FROM egress_requests')).toEqual([{ run_id: 'r1' }]);
});
