import { Fault, invalid } from '../kernel/fault.ts';

/** The most bytes a request's body may have. */
export const maxBodyBytes = 4 * 1024 * 1024;

/**
 * Reads a JSON body; undefined where there is none. Where the body is `optional`, an empty one needs no content type.
 * Throws faults in this order: 415 for another media type or encoding, 413 over 4 MiB, 400 for what is not JSON.
 */
export async function readJson(request: Request, optional: boolean): Promise<unknown> {
  const complaint = mediaComplaint(request.headers);
  if (complaint !== undefined) {
    if (optional && (await isEmpty(request))) return undefined;
    throw new Fault('unsupported_media_type', 'unsupported_media_type', complaint);
  }
  const bytes = await readBytes(request);
  if (bytes.byteLength === 0) return undefined;
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
  } catch {
    throw invalid([{ message: 'The body is not valid JSON in UTF-8', path: [] }]);
  }
}

/** The whole body, at most 4 MiB of it: throws the 413 as soon as there is more. */
export async function readBytes(request: Request): Promise<Uint8Array<ArrayBuffer>> {
  const announced = request.headers.get('content-length');
  if (Number(announced ?? 0) > maxBodyBytes) throw tooLarge();
  if (!request.body) return new Uint8Array();
  try {
    // With an announced length the server hands over so many bytes and no more; without one they are counted.
    const isFramed = announced !== null && !request.headers.has('transfer-encoding');
    return isFramed ? await request.bytes() : await readCounted(request.body);
  } catch (error) {
    if (error instanceof Fault) throw error;
    // The caller hung up: nobody reads this answer, and it is no bug of ours.
    throw invalid([{ message: 'The body ended early', path: [] }]);
  }
}

async function readCounted(body: ReadableStream<Uint8Array>): Promise<Uint8Array<ArrayBuffer>> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of body) {
    size += chunk.byteLength;
    if (size > maxBodyBytes) throw tooLarge();
    chunks.push(chunk);
  }
  return Buffer.concat(chunks, size);
}

async function isEmpty(request: Request): Promise<boolean> {
  if (!request.body) return true;
  for await (const chunk of request.body) {
    if (chunk.byteLength > 0) return false;
  }
  return true;
}

function mediaComplaint(headers: Headers): string | undefined {
  const encoding = headers.get('content-encoding');
  if (encoding !== null && encoding.trim().toLowerCase() !== 'identity') {
    return 'Send the body without Content-Encoding: compressed bodies are not accepted here';
  }
  const [type = '', ...parameters] = (headers.get('content-type') ?? '').toLowerCase().split(';');
  const foreignCharset = parameters.some((parameter) => /^\s*charset\s*=(?!\s*"?utf-?8"?\s*$)/.test(parameter));
  if (type.trim() === 'application/json' && !foreignCharset) return undefined;
  return 'Send the body as JSON in UTF-8, with Content-Type: application/json';
}

function tooLarge(): Fault {
  return new Fault('too_large', 'payload_too_large', `The body is larger than ${maxBodyBytes / 1024 / 1024} MiB`);
}
