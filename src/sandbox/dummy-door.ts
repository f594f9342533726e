import { connect } from 'node:net';
import { join } from 'node:path';

/** Asks the model as codex does: one streamed request to `/v1/responses`. `text` is the answer or the error. */
export async function askModel(
  socketDirectory: string,
  prompt: string,
  signal: AbortSignal,
): Promise<{ ok: boolean; text: string }> {
  const input = [{ type: 'message', role: 'user', content: [{ type: 'input_text', text: prompt }] }];
  const response = await fetch('http://127.0.0.1:3129/v1/responses', {
    unix: join(socketDirectory, 'gateway.sock'),
    method: 'POST',
    headers: { 'content-type': 'application/json', accept: 'text/event-stream' },
    body: JSON.stringify({ model: 'dummy', stream: true, store: false, input }),
    signal,
  });
  const body = await response.text();
  if (!response.ok) return { ok: false, text: `unexpected status ${response.status} ${response.statusText}: ${body}` };
  return readAnswer(body);
}

interface ResponsesEvent {
  readonly type?: string;
  readonly delta?: string;
  readonly response?: { incomplete_details?: { reason?: string }; error?: { message?: string } };
}

function readAnswer(stream: string): { ok: boolean; text: string } {
  let text = '';
  for (const line of stream.split('\n')) {
    if (!line.startsWith('data:') || line.startsWith('data: [DONE]')) continue;
    const event = JSON.parse(line.slice('data:'.length)) as ResponsesEvent;
    if (event.type === 'response.output_text.delta') text += event.delta ?? '';
    if (event.type === 'response.completed') return { ok: true, text };
    if (event.type === 'response.incomplete') {
      const reason = event.response?.incomplete_details?.reason ?? 'unknown';
      return { ok: false, text: `Incomplete response returned, reason: ${reason}` };
    }
    if (event.type === 'response.failed') {
      return { ok: false, text: event.response?.error?.message ?? 'The response failed' };
    }
  }
  return { ok: false, text: 'stream disconnected before completion: stream closed before response.completed' };
}

/** One GET in absolute form, as a client sends it to a proxy for a plain http address. */
export async function requestThroughProxy(
  socketDirectory: string,
  address: string,
  headers: Readonly<Record<string, string>>,
  signal: AbortSignal,
): Promise<{ status: number; body: string }> {
  const url = new URL(address);
  const fields = { Host: url.host, Connection: 'close', Accept: '*/*', ...headers };
  const lines = Object.entries(fields).map(([name, value]) => `${name}: ${value}\r\n`);
  const socket = connect(join(socketDirectory, 'proxy.sock'));
  const abort = () => socket.destroy(new Error('The program was ended'));
  signal.addEventListener('abort', abort, { once: true });
  try {
    socket.write(`GET ${url.href} HTTP/1.1\r\n${lines.join('')}\r\n`);
    const pieces: Uint8Array[] = [];
    for await (const piece of socket as AsyncIterable<Uint8Array>) pieces.push(piece);
    return readResponse(Buffer.concat(pieces));
  } finally {
    signal.removeEventListener('abort', abort);
    socket.destroy();
  }
}

function readResponse(bytes: Buffer): { status: number; body: string } {
  const end = bytes.indexOf('\r\n\r\n');
  if (end < 0) throw new Error('The proxy closed the connection without an answer');
  const head = bytes.subarray(0, end).toString('latin1');
  const status = Number(/^HTTP\/1\.[01] (\d{3})/.exec(head)?.[1] ?? 0);
  const payload = bytes.subarray(end + 4);
  const isChunked = /^transfer-encoding:.*chunked/im.test(head);
  return { status, body: (isChunked ? joinChunks(payload) : payload).toString('utf8') };
}

function joinChunks(payload: Buffer): Buffer {
  const chunks: Buffer[] = [];
  for (let at = 0; ; ) {
    const lineEnd = payload.indexOf('\r\n', at);
    if (lineEnd < 0) throw new Error('The answer through the proxy was cut off');
    const size = Number.parseInt(payload.subarray(at, lineEnd).toString('latin1'), 16);
    if (!(size > 0)) return Buffer.concat(chunks);
    chunks.push(payload.subarray(lineEnd + 2, lineEnd + 2 + size));
    at = lineEnd + 2 + size + 2;
  }
}
