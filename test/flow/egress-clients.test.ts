import { expect, test } from 'bun:test';
import path from 'node:path';
import { type Handler, openRig, secret } from '../support/origin.ts';

const host = 'api.allowed.test';
const { placeholder, value } = secret();

const nodeClient = `
const http = require('node:http'), https = require('node:https'), fs = require('node:fs');
const [port, ca, key] = process.argv.slice(1);
const connect = http.request({ port, method: 'CONNECT', path: '${host}:443' });
connect.on('connect', (_, socket) => {
  https.get({ host: '${host}', socket, agent: false, ca: fs.readFileSync(ca), headers: { 'X-Key': key } }, (response) => {
    response.pipe(process.stdout);
    response.on('end', () => socket.destroy());
  });
});
connect.end();`;

/** Every client that this machine has; in the sandbox image all of them are tried. */
const clients: Record<string, (port: number, ca: string) => string[]> = {
  node: (port, ca) => ['node', '-e', nodeClient, String(port), ca, placeholder],
  'bun fetch': (port, ca) => [
    process.execPath,
    '-e',
    `process.stdout.write(await (await fetch('https://${host}/', { proxy: 'http://127.0.0.1:${port}', headers: { 'X-Key': '${placeholder}' }, tls: { ca: await Bun.file('${ca}').text() } })).text())`,
  ],
  ...(Bun.which('curl')
    ? {
        curl: (port: number, ca: string) => {
          const proxy = `http://127.0.0.1:${port}`;
          return ['curl', '-sS', '--proxy', proxy, '--cacert', ca, '-H', `X-Key: ${placeholder}`, `https://${host}/`];
        },
      }
    : {}),
};

test.each(Object.keys(clients))(
  '%s works unchanged, its placeholder becomes the value and comes back as one',
  async (name) => {
    let seen: unknown;
    const handler: Handler = (request, response) => {
      seen = request.headers['x-key'];
      response.end(`you sent ${String(seen)}`);
    };
    await using rig = await openRig({ origins: [{ host, handler }], secrets: [secret()] });
    const ca = path.join(rig.directory, 'sandbox-ca.pem');
    await Bun.write(ca, rig.caCertificate);
    const command = clients[name]?.(await rig.forward(), ca) ?? [];
    const child = Bun.spawn(command, { stdout: 'pipe', stderr: 'pipe', env: { PATH: process.env.PATH ?? '' } });
    const [output, errors] = await Promise.all([new Response(child.stdout).text(), new Response(child.stderr).text()]);
    expect(errors).toBe('');
    expect(output).toBe(`you sent ${placeholder}`);
    expect(seen).toBe(value);
  },
);
