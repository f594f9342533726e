import path from 'node:path';
import { openAuthority } from '../egress/authority.ts';
import { statusHost } from './sample.ts';

/** The demo's status service: a TLS origin with a name of its own, so that substitution can be seen at work. */
export interface StatusService {
  readonly port: number;
  /** PEM file of the authority that signed its certificate. */
  readonly caFile: string;
  /** The tokens that reports came with. */
  readonly tokensSeen: readonly string[];
  stop(): Promise<void>;
}

/** Serves on 127.0.0.1. It takes a report only with the right token, and never repeats it. */
export async function startStatusService(directory: string, token: string): Promise<StatusService> {
  const authority = await openAuthority(directory);
  const leaf = await authority.leafFor(statusHost);
  const caFile = path.join(directory, 'certificate.pem');
  await Bun.write(caFile, authority.certificate);
  const tokensSeen: string[] = [];
  const server = Bun.serve({
    hostname: '127.0.0.1',
    port: 0,
    tls: { cert: leaf.cert, key: leaf.key },
    fetch(request) {
      const given = /^Bearer (.+)$/.exec(request.headers.get('authorization') ?? '')?.[1] ?? '';
      tokensSeen.push(given);
      if (given !== token) return Response.json({ error: 'wrong token' }, { status: 401 });
      return Response.json({ accepted: true, result: new URL(request.url).searchParams.get('result') });
    },
  });
  return { port: server.port ?? 0, caFile, tokensSeen, stop: () => server.stop(true) };
}
