import { describe, expect, test } from 'bun:test';
import type { HostPolicy } from '../../src/egress/egress.ts';
import { echo, openRig, type Peer, secret } from '../support/origin.ts';

const host = 'api.allowed.test';
const { placeholder } = secret();
const workspace: HostPolicy = { name: 'this workspace', default: 'deny', hosts: ['*.allowed.test', '93.184.216.1'] };
const automation: HostPolicy = { name: 'this automation', default: 'allow', hosts: ['api.allowed.test'] };

const origins = [
  { host, handler: echo },
  { host: 'deep.api.allowed.test', handler: echo },
  { host: 'allowed.test', handler: echo },
  { host: 'allowed.test', handler: echo, plain: true },
  { host, handler: echo, plain: true },
];

async function refusal(peer: Peer): Promise<{ status: number; code: string | undefined; error: string }> {
  const text = await peer.until((all) => /\r\n\r\n\{.*\}$/s.test(all));
  return {
    status: Number(/^HTTP\/1\.1 (\d{3}) /.exec(text)?.[1]),
    code: /X-Slipway-Egress: (\S+)/.exec(text)?.[1],
    error: JSON.parse(text.slice(text.indexOf('{'))).error,
  };
}

describe('a host that a policy does not let be reached', () => {
  test.each([
    [[workspace], 'allowed.test', 'not in the list of allowed hosts of this workspace'],
    [[workspace, automation], host, 'in the list of denied hosts of this automation'],
    [[automation, workspace], 'allowed.test', 'not in the list of allowed hosts of this workspace'],
    [[{ default: 'deny', hosts: [] }], host, 'not in the list of allowed hosts of this run'],
  ] as [HostPolicy[], string, string][])('under %p: %s is %s, told before its name is resolved', async (...row) => {
    const [policies, denied, why] = row;
    await using rig = await openRig({ origins, policies });
    const reason = `${denied} is ${why}.`;
    const tunnel = await rig.connect();
    tunnel.send(`CONNECT ${denied}:443 HTTP/1.1\r\nHost: ${denied}:443\r\n\r\n`);
    expect(await refusal(tunnel)).toEqual({ status: 403, code: 'host_not_allowed', error: reason });
    const plain = await rig.connect();
    plain.send(`GET http://${denied}/x HTTP/1.1\r\nHost: ${denied}\r\n\r\n`);
    expect(await refusal(plain)).toEqual({ status: 403, code: 'host_not_allowed', error: reason });
    expect(rig.resolved.size).toBe(0);
    expect(rig.accepted()).toBe(0);
    expect(await rig.recorded(2)).toMatchObject([
      { host: denied, port: 443, method: 'CONNECT', path: null, status: 403, decision: 'denied', reason },
      { host: denied, port: 80, method: 'GET', path: '/x', status: 403, decision: 'denied', reason },
    ]);
  });

  test('is refused for itself alone: the next request of the connection may go', async () => {
    await using rig = await openRig({ origins, policies: [workspace] });
    const peer = await rig.connect();
    peer.send('GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n');
    expect((await refusal(peer)).status).toBe(403);
    peer.clear();
    peer.send(`GET http://${host}/next HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
    expect(await peer.until('"url":"/next"')).toStartWith('HTTP/1.1 200 ');
  });

  test('is refused for that, whatever else the request does wrong with a secret', async () => {
    await using rig = await openRig({ origins, policies: [workspace], secrets: [secret()] });
    const peer = await rig.connect();
    peer.send(`GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nX: ${placeholder}\r\n\r\n`);
    expect((await refusal(peer)).code).toBe('host_not_allowed');
  });
});

test.each([
  [[], 'allowed.test'],
  [[workspace], host],
  [[workspace], 'deep.api.allowed.test'],
  [[workspace, { default: 'allow', hosts: ['*.api.allowed.test'] }], host],
  [[{ default: 'allow', hosts: ['*.allowed.test'] }], 'allowed.test'],
] as [HostPolicy[], string][])('under %p %s is reached', async (policies, allowed) => {
  await using rig = await openRig({ origins, policies });
  const peer = await rig.tunnel(allowed);
  peer.send(`GET /x HTTP/1.1\r\nHost: ${allowed}\r\n\r\n`);
  expect(await peer.until('"url":"/x"')).toStartWith('HTTP/1.1 200 ');
});
