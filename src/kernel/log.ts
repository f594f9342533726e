export type LogFields = Readonly<Record<string, string | number | boolean | null | undefined>>;

/** Writes one JSON object a line. Fields are plain values: an object could carry a secret along unseen. */
export interface Log {
  info(message: string, fields?: LogFields): void;
  warn(message: string, fields?: LogFields): void;
  /** `error` is written as its class, message and stack; never pass a validation error, it holds the input. */
  error(message: string, error: unknown, fields?: LogFields): void;
}

export function jsonLog(write: (line: string) => void = (line) => process.stderr.write(`${line}\n`)): Log {
  const put = (level: string, message: string, fields: LogFields = {}) =>
    write(JSON.stringify({ time: new Date().toISOString(), level, message, ...fields }));
  return {
    info: (message, fields) => put('info', message, fields),
    warn: (message, fields) => put('warn', message, fields),
    error: (message, error, fields) =>
      put('error', message, {
        ...fields,
        error: error instanceof Error ? (error.stack ?? error.message) : String(error),
      }),
  };
}

export const silentLog: Log = { info() {}, warn() {}, error() {} };
