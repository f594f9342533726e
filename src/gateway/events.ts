/**
 * Cuts a stream of server-sent events into whole events, each with the blank line that ends it. Whole, because only
 * a whole event can be metered and searched for what must not pass; clients act on whole events anyway.
 */
export interface EventCutter {
  /** The events that this piece completes. Throws when one event grows over the limit. */
  push(piece: Uint8Array): string[];
  /** What is left when the stream has ended: an event without its blank line, or nothing. */
  rest(): string[];
}

/** `maxEventLength` is in UTF-16 units. */
export function cutEvents(maxEventLength: number): EventCutter {
  const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  let held = '';
  let searchedTo = 0;
  return {
    push(piece) {
      held += decoder.decode(piece, { stream: true });
      const events: string[] = [];
      const boundary = /\r\n\r\n|\n\n|\r\r/g;
      boundary.lastIndex = searchedTo;
      let start = 0;
      while (boundary.exec(held) !== null) {
        events.push(held.slice(start, boundary.lastIndex));
        start = boundary.lastIndex;
      }
      held = held.slice(start);
      if (held.length > maxEventLength) throw new Error('An event of the model provider is too long');
      // A boundary may be cut in its middle, three units at most.
      searchedTo = Math.max(0, held.length - 3);
      return events;
    },
    rest() {
      const last = held + decoder.decode();
      held = '';
      return last.trim() === '' ? [] : [last];
    },
  };
}

/** The JSON that an event's data lines hold; undefined for a comment, a heartbeat or anything that is not JSON. */
export function dataOf(event: string): unknown {
  const data = event
    .split(/\r\n|\n|\r/)
    .filter((line) => line.startsWith('data:'))
    .map((line) => line.slice(5).replace(/^ /, ''))
    .join('\n');
  if (data === '') return undefined;
  try {
    return JSON.parse(data);
  } catch {
    return undefined;
  }
}
