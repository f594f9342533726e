import { expect, test } from 'bun:test';
import { type Attempt, interleaved, race, staggerMs } from '../../src/egress/dial-race.ts';

/** A race whose attempts and whose time are in the test's hand. */
function start(addresses: string[], isFinal: (error: unknown) => boolean = () => false) {
  const begun: string[] = [];
  const abandoned: string[] = [];
  const hands = new Map<string, { connect: () => void; ready: () => void; fail: (why: string) => void }>();
  let timer: { callback: () => void; ms: number } | null = null;
  const won = race<string>(
    addresses,
    (address, connect): Attempt<string> => {
      const { promise, resolve, reject } = Promise.withResolvers<string>();
      begun.push(address);
      hands.set(address, { connect, ready: () => resolve(address), fail: (why) => reject(new Error(why)) });
      return { ready: promise, abandon: () => void abandoned.push(address) };
    },
    isFinal,
    (callback, ms) => {
      const mine = { callback, ms };
      timer = mine;
      return () => {
        if (timer === mine) timer = null;
      };
    },
  );
  // A rejection is looked at by the test that expects one.
  won.catch(() => {});
  const hand = (address: string) => {
    const found = hands.get(address);
    if (found === undefined) throw new Error(`${address} was not begun`);
    return found;
  };
  return {
    won,
    begun,
    abandoned,
    hand,
    timer: () => timer,
    settled: () => new Promise((resolve) => setImmediate(resolve)),
  };
}

test('the families take turns, IPv6 first', () => {
  expect(interleaved(['1.1.1.1', '2.2.2.2', '3.3.3.3', '2606::1', '2606::2'])).toEqual([
    '2606::1',
    '1.1.1.1',
    '2606::2',
    '2.2.2.2',
    '3.3.3.3',
  ]);
  expect(interleaved(['1.1.1.1'])).toEqual(['1.1.1.1']);
});

test('the next address is tried 250 ms after the one before it, which stays in the race', async () => {
  const { won, begun, abandoned, hand, timer } = start(['a', 'b']);
  expect(begun).toEqual(['a']);
  expect(timer()?.ms).toBe(staggerMs);
  expect(staggerMs).toBe(250);
  timer()?.callback();
  expect(begun).toEqual(['a', 'b']);
  hand('a').connect();
  hand('a').ready();
  expect(await won).toBe('a');
  expect(abandoned).toEqual(['b']);
});

test('the first that connects wins although another was begun before it, and ends the waiting for more', async () => {
  const { won, begun, abandoned, hand, timer } = start(['a', 'b', 'c']);
  timer()?.callback();
  hand('b').connect();
  expect(abandoned).toEqual(['a']);
  expect(timer()).toBeNull();
  hand('b').ready();
  expect(await won).toBe('b');
  expect(begun).toEqual(['a', 'b']);
});

test('an address that fails is followed by the next at once', async () => {
  const { won, begun, hand, settled } = start(['a', 'b']);
  hand('a').fail('refused');
  await settled();
  expect(begun).toEqual(['a', 'b']);
  hand('b').ready();
  expect(await won).toBe('b');
});

test('when the winner fails in its handshake, the addresses that are left are tried', async () => {
  const { won, begun, hand, settled } = start(['a', 'b']);
  hand('a').connect();
  hand('a').fail('closed');
  await settled();
  expect(begun).toEqual(['a', 'b']);
  hand('b').ready();
  expect(await won).toBe('b');
});

test('a failure that no other address could mend is the end', async () => {
  const { won, begun, hand } = start(['a', 'b'], (error) => (error as Error).message === 'untrusted');
  hand('a').connect();
  hand('a').fail('untrusted');
  await expect(won).rejects.toThrow('untrusted');
  expect(begun).toEqual(['a']);
});

test('when all have failed, the last failure is told', async () => {
  const { won, hand, settled } = start(['a', 'b']);
  hand('a').fail('first');
  await settled();
  hand('b').fail('second');
  await expect(won).rejects.toThrow('second');
});
