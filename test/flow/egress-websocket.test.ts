import { describe, expect, test } from 'bun:test';
import type { Socket } from 'node:net';
import type { EgressSecret } from '../../src/egress/egress.ts';
import { frameOf, opcodes } from '../../src/egress/websocket-frames.ts';
import { openRig, secret } from '../support/origin.ts';
import { accept, enter, handshake, messageLog } from '../support/websocket.ts';

const host = 'api.allowed.test';
const spoken = (over: Partial<EgressSecret> = {}) => secret({ surfaces: ['headers', 'websocket'], ...over });
const { placeholder, value } = secret();

/** An origin that notes what it is told, and the whole proxy in front of it. */
async function openWorld(secrets: readonly EgressSecret[], answerHeaders = '') {
  const log = messageLog(true);
  const opened = Promise.withResolvers<Socket>();
  let offered: Record<string, unknown> = {};
  const rig = await openRig({
    secrets,
    origins: [
      {
        host,
        onUpgrade(request, socket) {
          offered = request.headers;
          accept(request, socket, answerHeaders.replaceAll('ECHO', String(request.headers['x-key'])));
          socket.on('data', log.receive).on('end', () => socket.end());
          opened.resolve(socket);
        },
      },
    ],
  });
  const say = async (opcode: number, final: boolean, data: string | Buffer) =>
    (await opened.promise).write(frameOf(opcode, final, Buffer.from(data), false));
  return {
    rig,
    log,
    say,
    origin: opened.promise,
    offered: () => offered,
    [Symbol.asyncDispose]: () => rig[Symbol.asyncDispose](),
  };
}

describe('the handshake', () => {
  test('it carries the value, its echo is redacted, and no extension is offered', async () => {
    await using world = await openWorld([secret()], 'X-Echo: ECHO\r\nSec-WebSocket-Protocol: ECHO\r\n');
    const { head } = await enter(
      await world.rig.tunnel(host),
      host,
      `X-Key: ${placeholder}\r\nSec-WebSocket-Extensions: permessage-deflate\r\n`,
    );
    expect(world.offered()['x-key']).toBe(value);
    expect(world.offered()['sec-websocket-extensions']).toBeUndefined();
    expect(head).toContain(`X-Echo: ${placeholder}`);
    expect(head).toContain(`Sec-WebSocket-Protocol: ${placeholder}`);
  });

  test('the 101 comes in one write, all of its headers', async () => {
    await using world = await openWorld([secret()], 'X-Echo: ECHO\r\n');
    const peer = await world.rig.tunnel(host);
    const first = new Promise<Buffer>((resolve) => peer.socket.once('data', resolve));
    peer.send(handshake(host));
    expect((await first).toString()).toMatch(/^HTTP\/1\.1 101 .*\r\n\r\n$/s);
  });

  test('an extension that was not offered is a 502', async () => {
    await using world = await openWorld([secret()], 'Sec-WebSocket-Extensions: permessage-deflate\r\n');
    const peer = await world.rig.tunnel(host);
    peer.send(handshake(host));
    expect(await peer.until('\r\n\r\n')).toStartWith('HTTP/1.1 502 ');
  });

  test('a run without secrets keeps its extensions', async () => {
    await using world = await openWorld([]);
    await enter(await world.rig.tunnel(host), host, 'Sec-WebSocket-Extensions: permessage-deflate\r\n');
    expect(world.offered()['sec-websocket-extensions']).toBe('permessage-deflate');
  });
});

describe('what the client says', () => {
  test('a value is put into text, as JSON where the message is JSON, and the ledger names the secret', async () => {
    const quoted = spoken({ value: `${value} "and" more` });
    await using world = await openWorld([quoted]);
    const client = await enter(await world.rig.tunnel(host), host);
    client.send(opcodes.text, true, `{"token":"${placeholder}"}`);
    client.send(opcodes.text, true, `token ${placeholder}.`);
    const messages = await world.log.atLeast(2);
    expect(messages).toEqual([
      { kind: 'text', data: JSON.stringify({ token: quoted.value }), frames: 1 },
      { kind: 'text', data: `token ${quoted.value}.`, frames: 1 },
    ]);
    (await world.origin).end();
    await client.ended;
    expect(await world.rig.recorded(1)).toMatchObject([{ status: 101, secrets: ['API_KEY'], decision: 'allowed' }]);
  });

  test('a placeholder is found over fragments and single bytes, with a ping in the middle of it', async () => {
    await using world = await openWorld([spoken()]);
    const client = await enter(await world.rig.tunnel(host), host);
    client.send(opcodes.text, false, `a ${placeholder.slice(0, 9)}`);
    client.send(opcodes.ping, true, 'now');
    const rest = frameOf(opcodes.continuation, true, Buffer.from(`${placeholder.slice(9)} b`), true);
    await world.log.atLeast(1);
    for (const byte of rest) client.raw(Buffer.from([byte]));
    expect(await world.log.atLeast(2)).toMatchObject([
      { kind: 'control', opcode: opcodes.ping, payload: Buffer.from('now') },
      { kind: 'text', data: `a ${value} b` },
    ]);
  });

  test('a message of 8 MiB streams: its beginning is with the origin before its end was sent', async () => {
    await using world = await openWorld([spoken({ value: `${value}longer` })]);
    const client = await enter(await world.rig.tunnel(host), host);
    const part = `${'x'.repeat(1000)}${placeholder}`;
    const whole = part.repeat(Math.ceil((8 * 1024 * 1024) / part.length));
    const frame = frameOf(opcodes.text, true, Buffer.from(whole), true);
    client.raw(frame.subarray(0, 4 * 1024 * 1024));
    await world.log.until(() => world.log.unfinished().length > 3 * 1024 * 1024);
    client.raw(frame.subarray(4 * 1024 * 1024));
    const [message] = await world.log.atLeast(1);
    expect(
      message !== undefined && 'data' in message && message.data === whole.replaceAll(placeholder, `${value}longer`),
    ).toBe(true);
  });

  test('without the surface, and in binary, a placeholder passes as it is', async () => {
    await using world = await openWorld([secret(), spoken({ name: 'B', placeholder: 'ph_BBBBBBBBBB' })]);
    const client = await enter(await world.rig.tunnel(host), host);
    client.send(opcodes.text, true, placeholder);
    client.send(opcodes.binary, true, 'ph_BBBBBBBBBB');
    expect(await world.log.atLeast(2)).toMatchObject([{ data: placeholder }, { data: 'ph_BBBBBBBBBB' }]);
  });

  for (const [kind, opcode] of Object.entries({ text: opcodes.text, binary: opcodes.binary, ping: opcodes.ping })) {
    test(`a placeholder that is not allowed here ends the connection with 1008: ${kind}`, async () => {
      const foreign = spoken({ name: 'OTHER', placeholder: 'ph_MARKERother', allowedHosts: ['x.test'] });
      await using world = await openWorld([spoken(), foreign]);
      const client = await enter(await world.rig.tunnel(host), host);
      client.send(opcodes.text, true, 'before');
      await world.log.atLeast(1);
      client.send(opcode, true, 'and ph_MARKERother');
      const [ended] = await client.log.atLeast(1);
      expect(ended).toMatchObject({ opcode: opcodes.close });
      expect('payload' in (ended ?? {}) && (ended as { payload: Buffer }).payload.readUInt16BE(0)).toBe(1008);
      await client.ended;
      const [, told] = await world.log.atLeast(2);
      expect(told).toMatchObject({ opcode: opcodes.close, payload: Buffer.from([0x03, 0xf0]) });
      expect(await world.rig.recorded(1)).toMatchObject([
        { status: 101, decision: 'denied', reason: expect.stringContaining('OTHER') },
      ]);
    });
  }

  test('bytes that are no frames end the connection with 1002', async () => {
    await using world = await openWorld([spoken()]);
    const client = await enter(await world.rig.tunnel(host), host);
    client.raw(Buffer.from('hello'));
    const [ended] = await client.log.atLeast(1);
    expect((ended as { payload: Buffer }).payload.readUInt16BE(0)).toBe(1002);
    await client.ended;
  });
});

describe('what the server says', () => {
  test('values become placeholders again in text, binary and control frames, over fragments too', async () => {
    await using world = await openWorld([secret()]);
    const client = await enter(await world.rig.tunnel(host), host);
    await world.say(opcodes.text, true, `{"echo":"${value}"}`);
    await world.say(opcodes.text, false, `a ${value.slice(0, 20)}`);
    await world.say(opcodes.ping, true, value);
    await world.say(opcodes.continuation, true, `${value.slice(20)} b`);
    await world.say(opcodes.binary, true, Buffer.from(`x:${value}`).toString('base64'));
    await world.say(opcodes.close, true, Buffer.concat([Buffer.from([0x03, 0xe8]), Buffer.from(value)]));
    expect(await client.log.atLeast(5)).toMatchObject([
      { kind: 'text', data: `{"echo":"${placeholder}"}`, frames: 1 },
      { kind: 'control', opcode: opcodes.ping, payload: Buffer.from(placeholder) },
      { kind: 'text', data: `a ${placeholder} b` },
      { kind: 'binary', data: Buffer.from(`x:${placeholder}`).toString('base64') },
      { kind: 'control', opcode: opcodes.close, payload: Buffer.from(`\x03\xe8${placeholder}`, 'latin1') },
    ]);
  });

  test('a value of another length is framed anew', async () => {
    await using world = await openWorld([secret({ value: value.repeat(4) })]);
    const client = await enter(await world.rig.tunnel(host), host);
    await world.say(opcodes.text, true, `a ${value.repeat(4)} b`);
    expect(await client.log.atLeast(1)).toEqual([{ kind: 'text', data: `a ${placeholder} b`, frames: 1 }]);
  });
});

describe('the end', () => {
  for (const [what, secrets] of Object.entries({ 'without secrets': [], 'with secrets': [spoken()] })) {
    test(`a side that says much and hangs up at once is heard to its end: ${what}`, async () => {
      const piece = Buffer.alloc(64 * 1024, 'x');
      await using world = await openWorld(secrets);
      const client = await enter(await world.rig.tunnel(host), host);
      for (let count = 0; count < 64; count++) await world.say(opcodes.binary, true, piece);
      (await world.origin).end();
      await client.ended;
      expect(client.log.messages.length).toBe(64);
      const other = await enter(await world.rig.tunnel(host), host);
      for (let count = 0; count < 64; count++) other.send(opcodes.binary, true, piece);
      other.end();
      expect((await world.log.atLeast(64)).length).toBe(64);
    });
  }

  test('bytes are counted each way, and a close goes through as it is', async () => {
    await using world = await openWorld([spoken()]);
    const client = await enter(await world.rig.tunnel(host), host);
    client.send(opcodes.text, true, 'hello');
    await world.log.atLeast(1);
    await world.say(opcodes.close, true, Buffer.from([0x03, 0xe8]));
    await client.log.atLeast(1);
    client.send(opcodes.close, true, Buffer.from([0x03, 0xe8]));
    await world.log.atLeast(2);
    (await world.origin).end();
    await client.ended;
    expect(await world.rig.recorded(1)).toMatchObject([
      { status: 101, bytesUp: 6 + 5 + 6 + 2, bytesDown: 2 + 2, decision: 'allowed', reason: null },
    ]);
  });

  test('the door ends it at once, and so does the withdrawal of a secret that it carried', async () => {
    await using world = await openWorld([spoken()]);
    const client = await enter(await world.rig.tunnel(host), host);
    client.send(opcodes.text, true, placeholder);
    await world.log.atLeast(1);
    world.rig.update({ secrets: [] });
    await client.ended;
    expect(await world.rig.recorded(1)).toMatchObject([{ status: 101, secrets: ['API_KEY'] }]);
    const idle = await enter(await world.rig.tunnel(host), host);
    await world.rig.closeDoor();
    await idle.ended;
  });
});
