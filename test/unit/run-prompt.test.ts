import { describe, expect, test } from 'bun:test';
import { mkdir, rm, stat } from 'node:fs/promises';
import path from 'node:path';
import { openDoors } from '../../src/runner/doors.ts';
import { firstPrompt, restartedPrompt, systemPrompt } from '../../src/runner/prompt.ts';
import { temporaryDirectory } from '../support/git.ts';

describe('the prompt', () => {
  test('of a first turn is the instructions, with the message behind them where there is one', () => {
    expect(firstPrompt('Do it.', null)).toBe('Do it.');
    expect(firstPrompt('Do it.', 'Now.')).toBe('Do it.\n\nNow.');
  });

  test('of a turn that starts over tells what was before, as far as it is known', () => {
    const whole = restartedPrompt('Do it.', { message: 'First?', answer: 'Yes.' }, 'Second?');
    expect(whole.indexOf('Do it.')).toBe(0);
    for (const part of ['First?', 'Yes.', 'Second?']) expect(whole).toContain(part);
    const bare = restartedPrompt('Do it.', { message: null, answer: null }, 'Second?');
    expect(bare).not.toMatch(/earlier (message|answer)/);
    expect(bare).toEndWith('The new message is:\nSecond?');
  });
});

describe('the rules of the sandbox', () => {
  const surroundings = {
    automationName: 'Triage',
    repositories: [{ fullName: 'acme/web', path: '/workspace/web', branch: 'main' }],
    secrets: [],
  };

  test('name the automation, the repositories with their places, and that there is no network', () => {
    const text = systemPrompt(surroundings);
    for (const part of ['Triage', 'acme/web', '/workspace/web', 'main', 'no network']) expect(text).toContain(part);
    expect(text).toContain('You have no secrets');
  });

  test('name each secret with its hosts, and never a value', () => {
    const secrets = [{ name: 'TOKEN', allowedHosts: ['api.example.com', '*.example.org'], value: 'hunter22' }];
    const text = systemPrompt({ ...surroundings, secrets });
    expect(text).toContain('- TOKEN: api.example.com, *.example.org');
    expect(text).not.toContain('hunter22');
  });
});

describe('the doors', () => {
  test('are the same for a turn after a restart, and others for every other turn', async () => {
    await using place = await temporaryDirectory();
    const [doors, later] = [openDoors(place.path), openDoors(place.path)];
    const first = await doors.make('run', 1);
    expect(await later.make('run', 1)).toBe(first);
    const all = [first, await doors.make('run', 2), await doors.make('run2', 1), await doors.make('run/1', 1)];
    expect(new Set(all).size).toBe(4);
    expect((await stat(first)).mode & 0o777).toBe(0o700);
  });

  test('are gone once they are removed, with what was in them, and removing them twice is fine', async () => {
    await using place = await temporaryDirectory();
    const doors = openDoors(place.path);
    const door = await doors.make('run', 1);
    await Bun.write(path.join(door, 'proxy.sock'), '');
    await doors.remove('run', 1);
    await doors.remove('run', 1);
    expect(stat(door)).rejects.toThrow();
  });

  test('fit into the address of a socket, however long the path of the data directory is', async () => {
    await using place = await temporaryDirectory();
    const deep = path.join(place.path, 'a-long-name-of-a-directory'.repeat(4), 'ü'.repeat(40));
    await mkdir(deep, { recursive: true });
    const doors = openDoors(deep);
    const door = await doors.make('run', 1);
    expect(Buffer.byteLength(path.join(door, 'gateway.sock'))).toBeLessThanOrEqual(107);
    const server = Bun.serve({ unix: path.join(door, 'gateway.sock'), fetch: () => new Response('here') });
    expect(await (await fetch('http://x/', { unix: path.join(door, 'gateway.sock') })).text()).toBe('here');
    await server.stop(true);
    await doors.remove('run', 1);
    expect(await openDoors(deep).make('run', 1)).toBe(door);
    await rm(path.dirname(door), { recursive: true });
  });

  test('of a server in a container are in the volume that it shares with them', async () => {
    await using place = await temporaryDirectory();
    const door = await openDoors('/data', place.path).make('run', 1);
    expect(path.dirname(door)).toBe(place.path);
    expect((await stat(door)).mode & 0o777).toBe(0o700);
    expect(openDoors('/data', `/${'d'.repeat(76)}`)).toBeDefined();
    expect(() => openDoors('/data', `/${'d'.repeat(77)}`)).toThrow('SLIPWAY_DOOR_VOLUME');
  });
});
