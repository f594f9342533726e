/** One invalid field of a request: `path` names the field from the outside in, array positions included. */
export interface Issue {
  readonly message: string;
  readonly path: readonly string[];
}

/** Why something could not be done. The HTTP edge turns each kind into one status. */
export type FaultKind =
  | 'invalid'
  | 'unauthenticated'
  | 'forbidden'
  | 'absent'
  | 'method_not_allowed'
  | 'conflict'
  | 'too_large'
  | 'unsupported_media_type'
  | 'bad_gateway'
  | 'unavailable';

/**
 * An expected failure whose `message` is safe to show to the caller: no secret, no internal address.
 * Anything else that is thrown is a bug and reaches the caller only as "Internal error".
 */
export class Fault extends Error {
  override readonly name = 'Fault';
  readonly kind: FaultKind;
  readonly code: string;
  readonly issues: readonly Issue[] | undefined;

  constructor(
    kind: FaultKind,
    code: string,
    message: string,
    detail: { issues?: readonly Issue[] | undefined; cause?: unknown } = {},
  ) {
    super(message, { cause: detail.cause });
    this.kind = kind;
    this.code = code;
    this.issues = detail.issues;
  }
}

/** 400: the request is wrong in the listed fields. `code` is `invalid_request` unless a reference is unknown. */
export const invalid = (issues: readonly Issue[], code = 'invalid_request') =>
  new Fault('invalid', code, 'Invalid request', { issues });

/** 404: `code` is one of the stable codes (`run_not_found`, …). A row of another workspace answers the same. */
export const absent = (code: string, message: string) => new Fault('absent', code, message);

/** 409: the request is right, the present state does not allow it. */
export const conflict = (code: string, message: string) => new Fault('conflict', code, message);
