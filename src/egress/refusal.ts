/** Why a request was not carried out, as the header `X-Slipway-Egress` names it to the client. */
export type RefusalCode =
  | 'bad_request'
  | 'body_unsearchable'
  | 'byte_limit'
  | 'authority_mismatch'
  | 'connection_limit'
  | 'expectation_failed'
  | 'head_too_large'
  | 'host_not_allowed'
  | 'method_not_allowed'
  | 'placeholder_not_allowed'
  | 'placeholder_without_tls'
  | 'port_not_allowed'
  | 'private_address'
  | 'secret_unusable'
  | 'secret_withdrawn'
  | 'upstream_failed'
  | 'upstream_idle'
  | 'upstream_unreachable'
  | 'upstream_unresolved'
  | 'upstream_untrusted';

const statusOf: Record<RefusalCode, number> = {
  bad_request: 400,
  body_unsearchable: 403,
  authority_mismatch: 421,
  byte_limit: 403,
  connection_limit: 503,
  expectation_failed: 417,
  head_too_large: 431,
  host_not_allowed: 403,
  method_not_allowed: 405,
  placeholder_not_allowed: 403,
  placeholder_without_tls: 403,
  port_not_allowed: 403,
  private_address: 403,
  secret_unusable: 403,
  secret_withdrawn: 403,
  upstream_failed: 502,
  upstream_idle: 504,
  upstream_unreachable: 502,
  upstream_unresolved: 502,
  upstream_untrusted: 502,
};

const phrases: Record<number, string> = {
  400: 'Bad Request',
  403: 'Forbidden',
  405: 'Method Not Allowed',
  417: 'Expectation Failed',
  421: 'Misdirected Request',
  431: 'Request Header Fields Too Large',
  502: 'Bad Gateway',
  503: 'Service Unavailable',
  504: 'Gateway Timeout',
};

/** A request that is answered by the proxy itself. `message` is for the agent and the ledger: no value, no address. */
export class Refusal extends Error {
  override readonly name = 'Refusal';
  readonly code: RefusalCode;
  readonly status: number;

  constructor(code: RefusalCode, message: string) {
    super(message);
    this.code = code;
    this.status = statusOf[code];
  }

  /** False where the rules allowed the request and the other side failed. */
  get denied(): boolean {
    return this.status !== 502 && this.status !== 504;
  }
}

/** The answer that tells a client about a refusal. `close` says that the connection ends with it. */
export function refusalAnswer(refusal: Refusal, close: boolean, bodyless = false): Buffer {
  const body = JSON.stringify({ error: refusal.message });
  const head = [
    `HTTP/1.1 ${refusal.status} ${phrases[refusal.status] ?? 'Refused'}`,
    'Content-Type: application/json',
    `Content-Length: ${Buffer.byteLength(body)}`,
    `X-Slipway-Egress: ${refusal.code}`,
    ...(close ? ['Connection: close'] : []),
  ].join('\r\n');
  return Buffer.from(`${head}\r\n\r\n${bodyless ? '' : body}`);
}
