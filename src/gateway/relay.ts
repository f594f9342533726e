import type { Scrub } from './answers.ts';
import { cutEvents, dataOf } from './events.ts';
import { type Ending, endingOfEvent, isObject, noUsage } from './meter.ts';

/** The longest single event, in UTF-16 units: the last one of a response repeats all of its output. */
const maxEventLength = 32 * 1024 * 1024;

export interface RelayOptions {
  /** Takes the key out of any event. */
  readonly scrub: Scrub;
  /** Takes more out of events that report an error. */
  readonly scrubError: Scrub;
  /**
   * Called before the event that ends the response is passed on, or when the stream ends without one. That event waits
   * for it: what a harness does next, it does when the usage is written down, and no crash can lose it.
   */
  ended(ending: Ending): Promise<void>;
}

/**
 * Passes a provider's stream on, event by event, as soon as each is whole, at the reader's pace. A stream that breaks
 * off is ended early and not with an error: the missing last event is what tells a harness.
 */
export function relay(upstream: ReadableStream<Uint8Array>, options: RelayOptions): ReadableStream<Uint8Array> {
  const reader = upstream.getReader();
  const cutter = cutEvents(maxEventLength);
  const encoder = new TextEncoder();
  const broken: Ending = { failure: 'unavailable', usage: noUsage };

  const passed = async (event: string): Promise<Uint8Array> => {
    const data = dataOf(event);
    const ending = endingOfEvent(data);
    if (ending !== null) await options.ended(ending);
    return encoder.encode(reportsError(data) ? options.scrubError(event) : options.scrub(event));
  };

  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      try {
        for (;;) {
          const piece = await reader.read();
          const events = piece.done ? cutter.rest() : cutter.push(piece.value);
          for (const event of events) controller.enqueue(await passed(event));
          if (piece.done) break;
          if (events.length > 0) return;
        }
      } catch {
        await reader.cancel().catch(() => {});
      }
      // After the last event this says nothing new; before it, the response was cut.
      await options.ended(broken);
      controller.close();
    },
    async cancel() {
      void options.ended({ failure: 'aborted', usage: noUsage });
      await reader.cancel().catch(() => {});
    },
  });
}

function reportsError(data: unknown): boolean {
  if (!isObject(data)) return false;
  return data.type === 'error' || data.type === 'response.failed';
}
