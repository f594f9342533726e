import { createPrivateKey, randomBytes, randomUUID, X509Certificate } from 'node:crypto';
import { link, mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { isIP } from 'node:net';
import path from 'node:path';
import type { Clock } from '../kernel/clock.ts';
import { systemClock } from '../kernel/clock.ts';

/** A certificate for one host with its key, as PEM. */
export interface Leaf {
  readonly cert: string;
  readonly key: string;
}

/** The installation's own certificate authority: what lets the proxy read the TLS of its own sandboxes. */
export interface Authority {
  /** PEM of the authority's certificate, to be trusted inside sandboxes. */
  readonly certificate: string;
  /** A certificate for a name or an address, made once and kept while it is fresh. */
  leafFor(host: string): Promise<Leaf>;
}

const fileName = 'authority.pem';
const hourMs = 60 * 60 * 1000;
const leafLifeMs = 24 * hourMs;
/** A leaf older than this is made anew: a connection that begins with it may last. */
const leafReuseMs = 12 * hourMs;
const maxLeaves = 2000;
const authorityLifeMs = 10 * 365 * 24 * hourMs;
const keyAlgorithm = { name: 'ECDSA', namedCurve: 'P-256' };
const signingAlgorithm = { name: 'ECDSA', hash: 'SHA-256' };

/** The library costs some 60 ms to load, which a start of the server need not wait for. */
async function loadX509() {
  await import('reflect-metadata');
  return import('@peculiar/x509');
}

/**
 * Opens the authority kept in `directory`, or makes it there (one file of mode 0600 with key and certificate).
 * Two processes that start at once end with the same authority. Throws when the file is damaged.
 */
export async function openAuthority(directory: string, clock: Clock = systemClock): Promise<Authority> {
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const file = path.join(directory, fileName);
  const text = (await readOrNull(file)) ?? (await createOnce(file, clock));
  const { certificate, keyDer } = parseAuthority(text);
  let signer: Promise<Signer> | undefined;
  const leaves = new Map<string, { readonly madeAt: number; readonly leaf: Promise<Leaf> }>();
  return {
    certificate,
    leafFor(host) {
      const known = leaves.get(host);
      leaves.delete(host);
      if (known !== undefined && clock() - known.madeAt < leafReuseMs) {
        leaves.set(host, known);
        return known.leaf;
      }
      signer ??= createSigner(certificate, keyDer);
      const made = { madeAt: clock(), leaf: signer.then((sign) => sign(host, clock())) };
      leaves.set(host, made);
      made.leaf.catch(() => leaves.delete(host));
      const [oldest] = leaves.keys();
      if (leaves.size > maxLeaves && oldest !== undefined) leaves.delete(oldest);
      return made.leaf;
    },
  };
}

type Signer = (host: string, now: number) => Promise<Leaf>;

/** One leaf key serves the whole process: what a client trusts is the signature, and the key never leaves here. */
async function createSigner(certificate: string, keyDer: Buffer): Promise<Signer> {
  const x509 = await loadX509();
  const issuer = new x509.X509Certificate(certificate);
  const signingKey = await crypto.subtle.importKey('pkcs8', new Uint8Array(keyDer), keyAlgorithm, false, ['sign']);
  const keys = await crypto.subtle.generateKey(keyAlgorithm, true, ['sign', 'verify']);
  const key = pemOf('PRIVATE KEY', await crypto.subtle.exportKey('pkcs8', keys.privateKey));
  const extensions = [
    new x509.BasicConstraintsExtension(false, undefined, true),
    new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature, true),
    new x509.ExtendedKeyUsageExtension([x509.ExtendedKeyUsage.serverAuth]),
    await x509.AuthorityKeyIdentifierExtension.create(issuer.publicKey),
    await x509.SubjectKeyIdentifierExtension.create(keys.publicKey),
  ];
  return async (host, now) => {
    const subject = host.length <= 64 ? `CN=${host}` : '';
    const names = new x509.SubjectAlternativeNameExtension(
      [{ type: isIP(host) === 0 ? 'dns' : 'ip', value: host }],
      subject === '',
    );
    const leaf = await x509.X509CertificateGenerator.create({
      serialNumber: newSerial(),
      subject,
      issuer: issuer.subject,
      notBefore: new Date(now - hourMs),
      notAfter: new Date(now + leafLifeMs),
      publicKey: keys.publicKey,
      signingKey,
      signingAlgorithm,
      extensions: [...extensions, names],
    });
    return { cert: leaf.toString('pem'), key };
  };
}

async function createOnce(file: string, clock: Clock): Promise<string> {
  const x509 = await loadX509();
  const keys = await crypto.subtle.generateKey(keyAlgorithm, true, ['sign', 'verify']);
  const now = clock();
  const certificate = await x509.X509CertificateGenerator.createSelfSigned({
    serialNumber: newSerial(),
    // Unlike names keep the authorities of two installations apart in one trust store.
    name: `CN=Slipway sandbox authority ${randomBytes(4).toString('hex')}`,
    notBefore: new Date(now - hourMs),
    notAfter: new Date(now + authorityLifeMs),
    keys,
    signingAlgorithm,
    extensions: [
      new x509.BasicConstraintsExtension(true, 0, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.keyCertSign | x509.KeyUsageFlags.cRLSign, true),
      await x509.SubjectKeyIdentifierExtension.create(keys.publicKey),
    ],
  });
  const key = pemOf('PRIVATE KEY', await crypto.subtle.exportKey('pkcs8', keys.privateKey));
  const draft = `${file}.${randomUUID()}`;
  await writeFile(draft, `${key}${certificate.toString('pem')}\n`, { mode: 0o600, flag: 'wx' });
  try {
    // `link` fails where the file exists: the first of two processes wins, and neither sees half a file.
    await link(draft, file);
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'EEXIST')) throw error;
  } finally {
    await rm(draft, { force: true });
  }
  return readFile(file, 'utf8');
}

function parseAuthority(text: string): { certificate: string; keyDer: Buffer } {
  try {
    const certificate = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/.exec(text)?.[0] ?? '';
    const key = createPrivateKey(text);
    if (!new X509Certificate(certificate).checkPrivateKey(key)) throw new Error('The key is of another certificate.');
    return { certificate: `${certificate}\n`, keyDer: key.export({ type: 'pkcs8', format: 'der' }) };
  } catch (cause) {
    throw new Error(
      `The certificate authority (${fileName} in the data directory) is damaged: restore it, or remove it to have a new one made.`,
      { cause },
    );
  }
}

async function readOrNull(file: string): Promise<string | null> {
  try {
    return await readFile(file, 'utf8');
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return null;
    throw error;
  }
}

/** 16 random bytes in hex with a first byte that makes the number positive and of full length. */
function newSerial(): string {
  const bytes = randomBytes(16);
  bytes[0] = ((bytes[0] ?? 0) & 0x3f) | 0x40;
  return bytes.toString('hex');
}

function pemOf(label: string, der: ArrayBuffer): string {
  const lines =
    Buffer.from(der)
      .toString('base64')
      .match(/.{1,64}/g) ?? [];
  return `-----BEGIN ${label}-----\n${lines.join('\n')}\n-----END ${label}-----\n`;
}
