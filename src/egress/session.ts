import { answerRefusal, asRefusal, type Entry, mayHaveBody, refuse, type Surroundings } from './answer.ts';
import { exchange } from './exchange.ts';
import { parseRequestHead, type RequestHead, readHead, wordsOf } from './http1.ts';
import { locate, planRequest, type Tunnel } from './plan.ts';
import type { Refusal } from './refusal.ts';
import { parseAuthority } from './rules.ts';
import { type Accepted, acceptConnect, enterTunnel } from './tunnel.ts';
import type { Wire, WireData } from './wire.ts';

/** Serves one connection of the sandbox until its end. Never throws for what a client or an origin does. */
export async function serveConnection(client: Wire, socket: Bun.Socket<WireData>, shared: Surroundings): Promise<void> {
  await serveRequests(client, null, shared, async (accepted) => {
    const entered = await enterTunnel(client, socket, accepted, shared);
    if (entered !== null) await serveRequests(entered.wire, entered.tunnel, shared, null);
  });
}

/** One request after the other; pipelined ones wait in the wire. */
async function serveRequests(
  client: Wire,
  tunnel: Tunnel | null,
  shared: Surroundings,
  onConnect: ((accepted: Accepted) => Promise<void>) | null,
): Promise<void> {
  for (;;) {
    client.deadlineAt = shared.clock() + shared.headTimeoutMs;
    const head = await readRequest(client, tunnel, shared);
    if (client.endedFor !== null) {
      await recordEnd(client.endedFor, tunnel, shared);
      return;
    }
    if (head === null) break;
    client.deadlineAt = null;
    if (head.method === 'CONNECT' && onConnect !== null) {
      const accepted = await acceptConnect(client, head, shared);
      if (accepted !== null) await onConnect(accepted);
      return;
    }
    if (!(await serveRequest(client, head, tunnel, shared))) return;
  }
  client.end();
}

/** A connection that was ended between two requests: no request's entry tells of it. */
async function recordEnd(why: Refusal, tunnel: Tunnel | null, shared: Surroundings): Promise<void> {
  if (!why.denied) return;
  await shared.report({
    ...(tunnel?.authority ?? { host: '', port: 0 }),
    at: shared.clock(),
    method: null,
    path: null,
    status: null,
    bytesUp: 0,
    bytesDown: 0,
    durationMs: 0,
    secrets: [],
    decision: 'denied',
    reason: why.message,
  });
}

/** Null at the end of the connection, or when what came was no request and was refused. */
async function readRequest(client: Wire, tunnel: Tunnel | null, shared: Surroundings): Promise<RequestHead | null> {
  try {
    const text = await readHead(client, shared.headBytes);
    // One empty line before a request is an old habit of clients after a body.
    return text === null ? null : parseRequestHead(text.startsWith('\r\n') ? text.slice(2) : text);
  } catch (error) {
    const entry = { host: tunnel?.authority.host ?? '', port: tunnel?.authority.port ?? 0, method: null, path: null };
    if (!client.gone) await refuse(client, asRefusal(error), entry, shared, true);
    return null;
  }
}

/** Answers whether the connection can go on. */
async function serveRequest(
  client: Wire,
  head: RequestHead,
  tunnel: Tunnel | null,
  shared: Surroundings,
): Promise<boolean> {
  const startedAt = shared.clock();
  let entry: Entry = entryOf(head, tunnel);
  try {
    const destination = locate(head, tunnel, shared.access);
    entry = { ...destination.authority, method: head.method, path: destination.target };
    const { host } = destination.authority;
    shared.refuseDenied(host);
    const passage = shared.passageTo(host, destination.secure);
    passage.over(client);
    const plan = planRequest(head, destination, passage);
    const outcome = await exchange(client, plan, shared.pool);
    const { failure, status } = outcome;
    await shared.report({
      ...entry,
      at: startedAt,
      status: status ?? (client.gone ? null : (failure?.status ?? null)),
      bytesUp: outcome.bytesUp,
      bytesDown: outcome.bytesDown,
      durationMs: shared.clock() - startedAt,
      secrets: [...passage.used],
      decision: failure?.denied ? 'denied' : 'allowed',
      reason: failure?.message ?? null,
    });
    if (failure === null) {
      if (!outcome.canGoOn) client.end();
      return outcome.canGoOn;
    }
    if (status !== null) client.destroy();
    else
      return goOn(await answerRefusal(client, failure, shared, plan.framing.kind !== 'none', head.method === 'HEAD'));
    return false;
  } catch (error) {
    const hasBody = mayHaveBody(head);
    return goOn(await refuse(client, asRefusal(error), entry, shared, hasBody, head.method === 'HEAD'));
  }

  /** A refused client that asked for the connection's end is given it: it may read until then. */
  function goOn(possible: boolean): boolean {
    const wanted = head.version === '1.1' && !wordsOf(head.headers, 'connection').includes('close');
    if (possible && !wanted) client.end();
    // A connection that was ended under the request has its entry in the ledger.
    return possible && wanted && !client.gone;
  }
}

/** What is known of a request before it has passed any rule. */
function entryOf(head: RequestHead, tunnel: Tunnel | null): Entry {
  const url = tunnel === null ? /^http:\/\/([^/?#]*)(.*)$/i.exec(head.target) : null;
  const authority = tunnel?.authority ?? parseAuthority(url?.[1] ?? '', 80);
  return {
    host: authority?.host ?? '',
    port: authority?.port ?? 0,
    method: head.method,
    path: url ? url[2] || '/' : head.target,
  };
}
