import { createRequire } from 'node:module';

/** One request as node's own parser (llhttp, strict) has understood it. */
export interface NodeRequest {
  readonly method: string;
  readonly target: string;
  /** Names and values in turn, as node gives them. */
  readonly headers: readonly string[];
  readonly body: string;
  readonly trailers: readonly string[];
}

interface NodeParser {
  [callback: number]: unknown;
  initialize(type: number, resource: object, maxHeaderSize: number, lenient: number): void;
  execute(bytes: Buffer): number | Error;
}

type NodeParserType = (new () => NodeParser) &
  Readonly<Record<'REQUEST' | 'kOnHeaders' | 'kOnHeadersComplete' | 'kOnBody' | 'kOnMessageComplete', number>>;

// It is node's, but not among the modules that node's types know.
const common: unknown = createRequire(import.meta.url)('node:_http_common');
const { HTTPParser, methods } = common as { HTTPParser: NodeParserType; methods: readonly string[] };

/** The requests that are whole in the bytes, in their order, up to the first mistake, and what llhttp says of that mistake. */
export function parseAsNode(bytes: Buffer): { requests: NodeRequest[]; error: string | null } {
  const requests: NodeRequest[] = [];
  let head: Pick<NodeRequest, 'method' | 'target' | 'headers'> = { method: '', target: '', headers: [] };
  let body: string[] = [];
  let flushed: string[] = [];
  let flushedTarget = '';
  const parser = new HTTPParser();
  parser.initialize(HTTPParser.REQUEST, {}, 0, 0);
  parser[HTTPParser.kOnHeadersComplete] = (
    _major: number,
    _minor: number,
    headers: readonly string[] | undefined,
    method: number,
    target: string | undefined,
  ) => {
    // Once there were trailers, node hands out the head of every later request as it does trailers.
    head = { method: methods[method] ?? '', target: target ?? flushedTarget, headers: headers ?? flushed };
    body = [];
    flushed = [];
    return 0;
  };
  parser[HTTPParser.kOnHeaders] = (headers: readonly string[], target: string) => {
    flushed = [...flushed, ...headers];
    flushedTarget = target;
  };
  parser[HTTPParser.kOnBody] = (piece: Buffer) => void body.push(piece.toString('latin1'));
  parser[HTTPParser.kOnMessageComplete] = () => {
    requests.push({ ...head, body: body.join(''), trailers: flushed });
    flushed = [];
  };
  let outcome: unknown;
  try {
    outcome = parser.execute(bytes);
  } catch (error) {
    outcome = error;
  }
  if (!(outcome instanceof Error)) return { requests, error: null };
  return { requests, error: 'reason' in outcome ? String(outcome.reason) : outcome.message };
}
