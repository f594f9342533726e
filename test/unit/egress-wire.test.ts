import { expect, test } from 'bun:test';
import { Wire } from '../../src/egress/wire.ts';

/** A socket that takes as many bytes as it is told to, and writes down what is done to it. */
function fakeSocket(room = Infinity) {
  const calls: string[] = [];
  const socket = {
    room,
    calls,
    write(bytes: Uint8Array) {
      const taken = Math.min(socket.room, bytes.length);
      socket.room -= taken;
      return taken;
    },
    end: () => void calls.push('end'),
    terminate: () => void calls.push('terminate'),
    pause: () => void calls.push('pause'),
    resume: () => void calls.push('resume'),
  };
  return socket;
}

const kib = (count: number) => Buffer.alloc(count * 1024);

test('a sender is paused while too much is unread, and resumed when it has been taken', () => {
  const socket = fakeSocket();
  const wire = new Wire(socket);
  wire.receive(kib(200));
  wire.receive(kib(100));
  expect(socket.calls).toEqual(['pause']);
  wire.take();
  wire.take();
  expect(socket.calls).toEqual(['pause', 'resume']);
});

test('a writer learns that the reader is slow, and waits until all is sent', async () => {
  const socket = fakeSocket(10);
  const wire = new Wire(socket);
  wire.write(kib(300));
  expect(wire.congested).toBe(true);
  let drained = false;
  const waiting = wire.drained().then(() => {
    drained = true;
  });
  socket.room = 1000;
  wire.flush();
  await Promise.resolve();
  expect(drained).toBe(false);
  socket.room = Infinity;
  wire.flush();
  await waiting;
  expect(wire.congested).toBe(false);
});

test('an end waits for what is queued, a destruction does not', () => {
  const socket = fakeSocket(1);
  const wire = new Wire(socket);
  wire.write(Buffer.from('ab'));
  wire.end();
  expect(socket.calls).toEqual([]);
  socket.room = 10;
  wire.flush();
  expect(socket.calls).toEqual(['end']);
  wire.destroy();
  wire.destroy();
  expect(socket.calls).toEqual(['end', 'terminate']);
});

test('what arrived before the end can still be taken, and the hanging up is told once', async () => {
  const wire = new Wire(fakeSocket());
  let told = 0;
  wire.onClose = () => {
    told += 1;
  };
  wire.receive(Buffer.from('last'));
  wire.finish();
  wire.drop();
  expect(await wire.more()).toBe(true);
  expect(wire.take()?.toString()).toBe('last');
  expect(await wire.more()).toBe(false);
  expect(told).toBe(1);
});
