import { describe, expect, setDefaultTimeout, test } from 'bun:test';
import type { Run, RunEvent, RunEventData } from '../../src/runs/schema.ts';
import { workspaceKeptMs } from '../../src/runs/service.ts';
import { localRepository, runGit } from '../support/git.ts';
import { testService } from '../support/service.ts';

setDefaultTimeout(30_000);

const typesOf = (run: Run) => run.events.map((event) => event.type);
const of = (run: Run, type: RunEvent['type'], turn = 1): RunEvent['data'][] =>
  run.events.filter((event) => event.type === type && event.turn === turn).map((event) => event.data);
const diffOf = (run: Run, turn = 1) => of(run, 'diff', turn)[0] as RunEventData['diff'];
const filesOf = (run: Run, turn = 1) =>
  Object.fromEntries(diffOf(run, turn).files.map((file) => [file.path, file] as const));

describe.concurrent('a run', () => {
  test('checks out, works, answers and shows its diff, in this order', async () => {
    await using service = await testService();
    const run = await service.played([
      { do: 'write', path: 'a.txt', content: 'two\n' },
      { do: 'tool', command: 'ls', output: 'a.txt', exitCode: 0 },
      { do: 'model', prompt: 'How is it?' },
    ]);
    expect(run).toMatchObject({ status: 'succeeded', resultSummary: 'Fine.', number: 1, turn: 1, phase: null });
    // Usage is written when the gateway has counted, which may be before or after the agent has said the answer.
    expect(typesOf(run).filter((type) => type !== 'usage')).toEqual([
      'run_queued',
      'user_message',
      'run_started',
      'repositories_checked_out',
      'sandbox_ready',
      'file_change',
      'tool_call',
      'tool_result',
      'message',
      'diff',
      'run_succeeded',
    ]);
    expect(of(run, 'usage')).toHaveLength(1);
    expect(run.events.map((event) => event.id)).toEqual(run.events.map((_, index) => index + 1));
    expect(run.events.every((event) => event.turn === 1 && !Number.isNaN(Date.parse(event.createdAt)))).toBe(true);
    const commit = await service.repository.git('rev-parse', 'HEAD');
    expect(of(run, 'run_started')).toEqual([{ attempt: 1 }]);
    expect(of(run, 'repositories_checked_out')).toEqual([
      { repositories: [{ fullName: 'demo', path: '/workspace/demo', branch: 'main', commit }] },
    ]);
    expect(of(run, 'sandbox_ready')).toEqual([{ harness: 'codex', model: 'gpt-5.4' }]);
    expect(of(run, 'run_succeeded')).toEqual([{ resultSummary: 'Fine.' }]);
    expect(diffOf(run).files).toEqual([{ path: 'a.txt', additions: 1, deletions: 1 }]);
    expect(diffOf(run).patch).toContain('-one\n+two\n');
    expect([run.createdAt, run.startedAt, run.completedAt].map((time) => typeof time)).toEqual(
      Array.from({ length: 3 }, () => 'string'),
    );
    expect(service.world.removed).toEqual([{ runId: run.id, turn: 1 }]);
  });

  test('without a message is given the instructions alone', async () => {
    await using service = await testService();
    const automationId = await service.automation({ prompt: 'Say what you see.' });
    const { body } = await service.call('POST', `/automations/${automationId}/runs`);
    const run = await service.finished(body.runId);
    expect(run).toMatchObject({ resultSummary: 'Say what you see.', trigger: { title: 'Manual run' } });
    expect(typesOf(run)).not.toContain('user_message');
  });

  test('shows new files, deletions, commits, and files beside the repositories in its diff', async () => {
    await using service = await testService();
    const runId = await service.start([
      { do: 'write', path: 'new file.txt', content: 'n\n' },
      { do: 'write', path: 'sub/deep.txt', content: 'd\n' },
      { do: 'write', path: '/workspace/beside.md', content: 'b\n' },
      { do: 'write', path: 'committed.txt', content: 'c\n' },
      { do: 'gate', name: 'edit' },
    ]);
    await service.world.reached('edit');
    const place = `${service.world.workspace(runId)}/demo`;
    await runGit(place, 'add', 'committed.txt');
    await runGit(place, 'commit', '--quiet', '-m', 'The agent commits');
    await runGit(place, 'rm', '--quiet', 'a.txt');
    service.world.gate('edit').open();
    const run = await service.finished(runId);
    expect(Object.keys(filesOf(run)).toSorted()).toEqual([
      'a.txt',
      'beside.md',
      'committed.txt',
      'new file.txt',
      'sub/deep.txt',
    ]);
    expect(diffOf(run).files).toContainEqual({ path: 'a.txt', additions: 0, deletions: 1 });
    expect(diffOf(run).patch).toContain('deleted file mode');
    expect(of(run, 'warning')).toEqual([]);
  });

  test('works on several repositories, the first one being its working directory', async () => {
    await using service = await testService();
    await using second = await localRepository();
    await second.commit({ 'b.txt': 'b\n' });
    const other = await service.connect(second.url);
    const run = await service.played(
      [
        { do: 'where' },
        { do: 'write', path: 'a.txt', content: '' },
        { do: 'write', path: '/workspace/demo-2/c', content: 'c' },
      ],
      { repositoryIds: [service.repositoryId, other] },
    );
    const [checkedOut] = of(run, 'repositories_checked_out') as { repositories: { path: string }[] }[];
    expect(checkedOut?.repositories.map(({ path }) => path)).toEqual(['/workspace/demo', '/workspace/demo-2']);
    expect((await service.call('GET', `/runs/${run.id}/turns/1/raw`)).body).toContain('\n/workspace/demo\n');
    expect(Object.keys(filesOf(run)).toSorted()).toEqual(['demo-2/c', 'demo/a.txt']);
    expect(diffOf(run).patch).toContain('+++ b/demo-2/c');
  });

  test('keeps the whole of the harness output for download', async () => {
    await using service = await testService();
    const run = await service.played([
      { do: 'print', line: 'not json' },
      { do: 'message', text: 'Hello' },
    ]);
    const raw = await service.call('GET', `/runs/${run.id}/turns/1/raw`);
    expect(raw.body).toBe(
      '{"type":"session","sessionId":"dummy-session"}\nnot json\n{"type":"message","text":"Hello"}\n',
    );
  });
});

describe.concurrent('a follow-up', () => {
  test('continues the session in the same workspace, and its diff is against the first checkout', async () => {
    await using service = await testService();
    const first = await service.played([{ do: 'write', path: 'one.txt', content: '1\n' }]);
    await service.repository.commit({ 'later.txt': 'later\n' });
    const answer = await service.message(first.id, [
      { do: 'gate', name: 'second' },
      { do: 'write', path: 'two.txt', content: '2\n' },
      { do: 'message', text: 'Again.' },
    ]);
    expect(answer).toMatchObject({ status: 202, body: { queued: true } });
    await service.world.reached('second');
    await service.event(first.id, 'sandbox_ready', 2);
    const active = await service.run(first.id);
    expect(active).toMatchObject({
      status: 'running',
      phase: 'agent',
      turn: 2,
      number: 1,
      createdAt: first.createdAt,
      startedAt: first.startedAt,
      completedAt: null,
      resultSummary: null,
      failureCategory: null,
      failureMessage: null,
      cancelRequestedAt: null,
    });
    service.world.gate('second').open();
    const run = await service.finished(first.id);
    expect(run).toMatchObject({ status: 'succeeded', resultSummary: 'Again.', startedAt: first.startedAt });
    expect(Object.keys(filesOf(run, 2)).toSorted()).toEqual(['one.txt', 'two.txt']);
    expect(typesOf(run).slice(first.events.length)).toEqual([
      'run_queued',
      'user_message',
      'run_started',
      'sandbox_ready',
      'file_change',
      'message',
      'diff',
      'run_succeeded',
    ]);
    expect(run.events.map((event) => event.id)).toEqual(run.events.map((_, index) => index + 1));
    expect(service.world.started.map(({ turn }) => turn)).toEqual([1, 2]);
  });

  test('is told as it was written when the session goes on', async () => {
    await using service = await testService();
    const first = await service.played([]);
    await service.call('POST', `/runs/${first.id}/messages`, { message: 'And now?' });
    const run = await service.finished(first.id);
    expect(run.resultSummary).toBe('Continuing dummy-session: And now?');
  });

  test('keeps the version of the automation that the run began with', async () => {
    await using service = await testService();
    const automationId = await service.automation();
    const first = await service.played([], automationId);
    await service.call('PATCH', `/automations/${automationId}`, { configuration: { prompt: 'Another.' } });
    await service.message(first.id, []);
    expect(await service.finished(first.id)).toMatchObject({ status: 'succeeded', automationVersion: 1, turn: 2 });
  });

  test('continues a run that failed, and one that was cancelled, and adds up their usage', async () => {
    await using service = await testService();
    const failed = await service.played([
      { do: 'model', prompt: 'x' },
      { do: 'exit', code: 3 },
    ]);
    expect(failed).toMatchObject({ status: 'failed', inferenceUsage: { requests: 1 } });
    await service.message(failed.id, [
      { do: 'model', prompt: 'y' },
      { do: 'gate', name: 'y' },
    ]);
    await service.world.reached('y');
    expect(await service.run(failed.id)).toMatchObject({ failureCategory: null, failureMessage: null });
    service.world.gate('y').open();
    const continued = await service.finished(failed.id);
    expect(continued).toMatchObject({ status: 'succeeded', failureCategory: null, inferenceUsage: { requests: 2 } });
    expect(continued.inferenceUsage?.inputTokens).toBeGreaterThan(failed.inferenceUsage?.inputTokens ?? 0);

    const waiting = await service.start([{ do: 'wait' }]);
    await service.event(waiting, 'sandbox_ready');
    await service.cancel(waiting);
    await service.finished(waiting);
    await service.message(waiting, []);
    expect(await service.finished(waiting)).toMatchObject({ status: 'succeeded', cancelRequestedAt: null });
  });

  test('starts over with a warning, and is told what was before, once the workspace was removed', async () => {
    await using service = await testService();
    const automationId = await service.automation({ prompt: 'Look around.' });
    const { body } = await service.call('POST', `/automations/${automationId}/runs`, { message: 'And tell me.' });
    const first = await service.finished(body.runId);
    await Bun.write(`${service.world.workspace(first.id)}/demo/left.txt`, 'left by the first turn');
    service.pass(workspaceKeptMs + 1000);
    expect(await service.service().reap()).toBe(1);
    const later = await service.repository.commit({ 'later.txt': 'later\n' });
    await service.call('POST', `/runs/${first.id}/messages`, { message: 'And now?' });
    const run = await service.finished(first.id);
    expect(run.status).toBe('succeeded');
    expect(of(run, 'warning', 2)).toHaveLength(1);
    expect(of(run, 'repositories_checked_out', 2)).toMatchObject([{ repositories: [{ commit: later }] }]);
    expect(diffOf(run, 2).files).toEqual([]);
    expect(run.resultSummary).toContain('The earlier message was:\nAnd tell me.');
    expect(run.resultSummary).toContain('Your earlier answer was:\nLook around.\n\nAnd tell me.');
    expect(run.resultSummary).toContain('And now?');
    expect(run.resultSummary).not.toContain('Continuing');
  });

  test('that comes while the last turn is still being cleaned up is worked on like any other', async () => {
    const removing = Promise.withResolvers<void>();
    const letRemove = Promise.withResolvers<void>();
    await using service = await testService({
      sandbox: (sandbox) => ({
        ...sandbox,
        async start(spec) {
          const process = await sandbox.start(spec);
          if (spec.turn > 1) return process;
          return {
            ...process,
            async remove() {
              removing.resolve();
              await letRemove.promise;
              await process.remove();
            },
          };
        },
      }),
    });
    const { id } = await service.played([]);
    await removing.promise;
    await service.message(id, [{ do: 'wait' }]);
    letRemove.resolve();
    await service.event(id, 'sandbox_ready', 2);
    await service.cancel(id);
    expect(await service.finished(id)).toMatchObject({ status: 'cancelled', turn: 2 });
    await service.service().runner.idle();
    expect(service.world.removed.map(({ turn }) => turn)).toEqual([1, 2]);
  });
});
