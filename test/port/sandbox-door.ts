import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pack } from 'tar-stream';

/** A certificate that signed nothing: the suite needs one to hand in, its key was thrown away. */
const caCertificate = `-----BEGIN CERTIFICATE-----
MIIBiDCCAS+gAwIBAgIUBxeC1vA5x6Stjclu+4m1+hq+hyMwCgYIKoZIzj0EAwIw
GTEXMBUGA1UEAwwOQ29uZm9ybWFuY2UgQ0EwIBcNMjYxMTIxMDkyODQ3WhgPMjEy
NjEwMjgwOTI4NDdaMBkxFzAVBgNVBAMMDkNvbmZvcm1hbmNlIENBMFkwEwYHKoZI
zj0CAQYIKoZIzj0DAQcDQgAEC5CrLB+ki72HjBgDAbqjw1aR8H6NcOapVR5Nuiqb
3bgKcpRQlRLZWhD+8hnBaixoROidvqvNdxmiBzRmb4CW4KNTMFEwHQYDVR0OBBYE
FDubRyFdVBhj2VGHR7GA7x2d8QVRMB8GA1UdIwQYMBaAFDubRyFdVBhj2VGHR7GA
7x2d8QVRMA8GA1UdEwEB/wQFMAMBAf8wCgYIKoZIzj0EAwIDRwAwRAIgXjijHFA2
psgaLdUmfsQX5PvnsSjyH7YIqpBb6/dstv4CIA0kWggDh6BYHoZAC9ynKU1LNKdK
zdB2Lg2dVup8A4f4
-----END CERTIFICATE-----
`;

/** The two sockets of a run, each answered by a server that says who it is and what was asked. */
export async function openDoor() {
  const directory = await mkdtemp(join(tmpdir(), 'slipway-door-'));
  const gateway = Bun.serve({
    unix: join(directory, 'gateway.sock'),
    fetch: (request) => new Response(`gateway ${request.method} ${new URL(request.url).pathname}\n`),
  });
  const proxy = Bun.serve({
    unix: join(directory, 'proxy.sock'),
    fetch(request) {
      return new Response(`proxy ${request.method} ${request.headers.get('host')} ${new URL(request.url).pathname}\n`);
    },
  });
  // The shim of an engine runs as another user.
  await chmod(directory, 0o755);
  for (const name of ['gateway.sock', 'proxy.sock']) await chmod(join(directory, name), 0o666);

  return {
    directory,
    caCertificate,
    async close() {
      await Promise.all([gateway.stop(true), proxy.stop(true)]);
      await rm(directory, { recursive: true, force: true });
    },
  };
}

/** A tar archive as a stream. One that `breaks` fails after the first half of its bytes, as a source that dies does. */
export function tarStream(files: readonly { name: string; text: string }[], end: 'whole' | 'breaks' = 'whole') {
  const archive = pack();
  for (const file of files) archive.entry({ name: file.name }, file.text);
  archive.finalize();
  let isGiven = false;
  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      if (isGiven && end === 'breaks') return controller.error(new Error('The source of the archive broke'));
      if (isGiven) return controller.close();
      isGiven = true;
      const bytes = Buffer.concat(await Array.fromAsync(archive as AsyncIterable<Uint8Array>));
      controller.enqueue(new Uint8Array(end === 'breaks' ? bytes.subarray(0, bytes.length / 2) : bytes));
    },
  });
}
