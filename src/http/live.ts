export interface LiveEvent {
  /** What the client sends back as `Last-Event-ID` when it reconnects. */
  readonly id: number;
  /** A word without line ends. */
  readonly event: string;
  /** Becomes one line of JSON. */
  readonly data: unknown;
}

export interface EventStreamOptions {
  /** After so long a silence a comment is sent, so that proxies on the way keep the connection. */
  readonly heartbeatMs: number;
  /** Ends the stream. The source should end on it too: a source that waits cannot be ended from outside. */
  readonly signal: AbortSignal;
}

/** How long a client is asked to wait before it reconnects. */
const reconnectAfterMs = 2000;

/**
 * Server-sent events (WHATWG HTML, section 9.2) from a source, which is asked for the next event only when the client
 * has taken the last one. The source's `return()` is called when the client leaves or `signal` is aborted. An error
 * of the source breaks the stream off.
 */
export function eventStream(source: AsyncIterable<LiveEvent>, options: EventStreamOptions): ReadableStream<Uint8Array> {
  const { heartbeatMs, signal } = options;
  const iterator = source[Symbol.asyncIterator]();
  const encoder = new TextEncoder();
  const aborted = Promise.withResolvers<'aborted'>();
  const onAbort = () => aborted.resolve('aborted');
  let next: Promise<IteratorResult<LiveEvent>> | undefined;
  let greeted = false;
  let left = false;

  const leave = () => {
    left = true;
    signal.removeEventListener('abort', onAbort);
    // Not awaited: a source that waits inside `next` answers only after it has noticed the end itself.
    Promise.resolve(iterator.return?.()).catch(() => undefined);
  };

  return new ReadableStream<Uint8Array>(
    {
      start() {
        signal.addEventListener('abort', onAbort);
        if (signal.aborted) onAbort();
      },
      async pull(controller) {
        if (!greeted) {
          greeted = true;
          controller.enqueue(encoder.encode(`retry: ${reconnectAfterMs}\n\n`));
          return;
        }
        next ??= iterator.next();
        const outcome = await firstOf(next, aborted.promise, heartbeatMs);
        if (left) return;
        if (outcome === 'silence') {
          controller.enqueue(encoder.encode(': heartbeat\n\n'));
        } else if (outcome === 'aborted' || outcome.done) {
          leave();
          controller.close();
        } else {
          next = undefined;
          controller.enqueue(encoder.encode(frameOf(outcome.value)));
        }
      },
      cancel: leave,
    },
    { highWaterMark: 0 },
  );
}

/** An abort comes first where both are ready: a source that never rests must not keep the stream open. */
async function firstOf<T>(
  next: Promise<T>,
  aborted: Promise<'aborted'>,
  ms: number,
): Promise<T | 'aborted' | 'silence'> {
  const silence = Promise.withResolvers<'silence'>();
  const timer = setTimeout(() => silence.resolve('silence'), ms);
  try {
    return await Promise.race([aborted, next, silence.promise]);
  } finally {
    clearTimeout(timer);
  }
}

function frameOf({ id, event, data }: LiveEvent): string {
  return `id: ${id}\nevent: ${event}\ndata: ${JSON.stringify(data)}\n\n`;
}

/**
 * Passes a stream on as it is. Its error goes to `onError` and not to the receiver: a stream of events just ends, for
 * its reader comes back after the last event, while a download has to be seen to be incomplete (`mustBeWhole`).
 * `onEnd` is called when nothing more is read, whoever ended it.
 */
export function relay(
  stream: ReadableStream<Uint8Array>,
  options: { mustBeWhole: boolean; onError: (error: unknown) => void; onEnd: () => void },
): ReadableStream<Uint8Array> {
  const reader = stream.getReader();
  let left = false;
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        try {
          const { done, value } = await reader.read();
          if (left) return;
          if (!done) {
            controller.enqueue(value);
            return;
          }
          options.onEnd();
          controller.close();
        } catch (error) {
          options.onEnd();
          options.onError(error);
          if (left) return;
          if (options.mustBeWhole) controller.error(new Error('A download broke off; the log says why'));
          else controller.close();
        }
      },
      cancel(reason) {
        left = true;
        options.onEnd();
        return reader.cancel(reason);
      },
    },
    { highWaterMark: 0 },
  );
}
