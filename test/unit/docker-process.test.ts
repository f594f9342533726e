import { describe, expect, test } from 'bun:test';
import type Docker from 'dockerode';
import { dockerProcess } from '../../src/sandbox/docker-process.ts';
import { SandboxFailure } from '../../src/sandbox/sandbox.ts';

const refusal = (statusCode: number) => Object.assign(new Error('refused'), { statusCode });

/** A container that answers as given; what it is not given it must not be asked. */
const containerThat = (answers: { wait?: () => Promise<unknown>; inspect?: () => Promise<unknown> }) =>
  ({ id: 'one', ...answers }) as unknown as Docker.Container;

const processOf = (container: Docker.Container, closing = new AbortController().signal) =>
  dockerProcess(container, { maxOutputBytes: 1000, closing, remove: async () => {} });

const ended = async () => ({ StatusCode: 0 });

describe('the exit of a process', () => {
  test('is what the engine says of the container once it has ended', async () => {
    const State = { Running: false, ExitCode: 5, OOMKilled: true };
    const { exit } = processOf(containerThat({ wait: ended, inspect: async () => ({ State }) }));
    expect(await exit).toEqual({ code: 5, outOfMemory: true, outputLimitReached: false });
  });

  test('is that of a killed one where the container was removed', async () => {
    const { exit } = processOf(containerThat({ wait: ended, inspect: () => Promise.reject(refusal(404)) }));
    expect(await exit).toMatchObject({ code: 137, outOfMemory: false });
  });

  test('is waited for on where the engine ends the call before the process has ended', async () => {
    const states = [true, true, false].map((Running) => ({ State: { Running, ExitCode: 0, OOMKilled: false } }));
    const { exit } = processOf(containerThat({ wait: ended, inspect: async () => states.shift() }));
    expect(await exit).toMatchObject({ code: 0 });
    expect(states).toEqual([]);
  });

  test('is waited for no longer once the adapter is closed', async () => {
    const closing = new AbortController();
    const { exit } = processOf(containerThat({ wait: () => new Promise(() => {}) }), closing.signal);
    closing.abort(new SandboxFailure('unavailable', 'The server has stopped.'));
    await expect(exit).rejects.toMatchObject({ name: 'SandboxFailure', reason: 'unavailable' });
  });

  test('fails as the sandbox does where the engine is gone', async () => {
    const gone = () => Promise.reject(Object.assign(new Error('connect ENOENT'), { code: 'ENOENT' }));
    const { exit } = processOf(containerThat({ wait: ended, inspect: gone }));
    await expect(exit).rejects.toMatchObject({ name: 'SandboxFailure', reason: 'unavailable' });
  });
});
