import { type Header, type ResponseHead, valuesOf } from './http1.ts';
import { Refusal } from './refusal.ts';
import type { SecretsForHost } from './substitute.ts';

/** Whether the messages of a connection are read: only where the run has secrets at all. */
export const readsMessages = ({ eligible, foreign }: SecretsForHost): boolean =>
  eligible.length > 0 || foreign.length > 0;

/** Extensions change what stands in the frames (they compress them): without the offer there are none. */
export const withoutExtensions = (headers: readonly Header[]): Header[] =>
  headers.filter(([name]) => name.toLowerCase() !== 'sec-websocket-extensions');

/** Throws `Refusal` for an origin that uses an extension which was not offered. */
export function refuseExtensions(head: ResponseHead, host: string): void {
  if (valuesOf(head.headers, 'sec-websocket-extensions').length === 0) return;
  throw new Refusal('upstream_failed', `${host} uses a WebSocket extension that was not offered to it.`);
}
