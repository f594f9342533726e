import { expect, test } from 'bun:test';
import { X509Certificate } from 'node:crypto';
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { openAuthority } from '../../src/egress/authority.ts';

async function temporary() {
  const directory = await mkdtemp(path.join(tmpdir(), 'slipway-ca-'));
  return { directory, [Symbol.asyncDispose]: () => rm(directory, { recursive: true, force: true }) };
}

test('it is made once, readable by its owner only, also when two start at once', async () => {
  await using place = await temporary();
  const directory = path.join(place.directory, 'ca');
  const [one, two] = await Promise.all([openAuthority(directory), openAuthority(directory)]);
  expect(one.certificate).toBe(two.certificate);
  expect((await openAuthority(directory)).certificate).toBe(one.certificate);
  expect(one.certificate).not.toContain('PRIVATE');
  expect(await readdir(directory)).toEqual(['authority.pem']);
  expect((await stat(path.join(directory, 'authority.pem'))).mode & 0o777).toBe(0o600);
});

test('a leaf names its host, is signed by the authority, lives a day and is kept while fresh', async () => {
  await using place = await temporary();
  let now = Date.now();
  const authority = await openAuthority(place.directory, () => now);
  const root = new X509Certificate(authority.certificate);
  const long = `${'a'.repeat(60)}.${'b'.repeat(60)}.test`;
  for (const host of ['api.example.com', '93.184.216.34', '2606:4700::1111', long]) {
    const leaf = new X509Certificate((await authority.leafFor(host)).cert);
    expect(leaf.checkIssued(root)).toBe(true);
    expect(leaf.verify(root.publicKey)).toBe(true);
    expect(host.includes(':') || /^\d/.test(host) ? leaf.checkIP(host) : leaf.checkHost(host)).toBeDefined();
    expect(leaf.validToDate.getTime() - leaf.validFromDate.getTime()).toBe(25 * 60 * 60 * 1000);
  }
  const first = await authority.leafFor('api.example.com');
  expect(await authority.leafFor('api.example.com')).toBe(first);
  now += 13 * 60 * 60 * 1000;
  expect((await authority.leafFor('api.example.com')).cert).not.toBe(first.cert);
});

test('a damaged file is reported with the mend, and is not overwritten', async () => {
  await using place = await temporary();
  const file = path.join(place.directory, 'authority.pem');
  await writeFile(file, 'not a key');
  await expect(openAuthority(place.directory)).rejects.toThrow('restore it, or remove it');
  expect(await readFile(file, 'utf8')).toBe('not a key');
});
