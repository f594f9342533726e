/** A value that must not be shown, and what stands for it. */
export interface Hidden {
  readonly value: string;
  readonly placeholder: string;
}

/** Shorter values are left: they would be found by chance in text that has nothing to do with them. */
const leastLength = 4;

/**
 * The last gate before anything of a sandbox is kept: the agent has placeholders only, but a host that it may talk to
 * can answer with the real value. Answers a function that puts the placeholder back in text, in plain form, as JSON
 * writes it and as an address does, at any depth of a value.
 */
export function scrubber(hidden: readonly Hidden[]) {
  let pairs = sorted(hidden.flatMap(formsOf));

  /** Hides more values from now on; those that are hidden already stay so. */
  function learn(more: readonly Hidden[]): void {
    const known = new Set(pairs.map(({ value }) => value));
    pairs = sorted([...pairs, ...more.flatMap(formsOf).filter(({ value }) => !known.has(value))]);
  }

  const text = (given: string): string =>
    pairs.reduce((shown, { value, placeholder }) => shown.replaceAll(value, () => placeholder), given);

  function deep<T>(given: T): T {
    if (pairs.length === 0) return given;
    if (typeof given === 'string') return text(given) as T;
    if (Array.isArray(given)) return given.map(deep) as T;
    if (typeof given === 'object' && given !== null) {
      return Object.fromEntries(Object.entries(given).map(([key, value]) => [text(key), deep(value)])) as T;
    }
    return given;
  }

  return { text, deep, learn };
}
export type Scrubber = ReturnType<typeof scrubber>;

function formsOf({ value, placeholder }: Hidden): Hidden[] {
  if (value.length < leastLength) return [];
  const forms = new Set([value, JSON.stringify(value).slice(1, -1), encodeURIComponent(value.toWellFormed())]);
  return [...forms].map((form) => ({ value: form, placeholder }));
}

/** The longest first, so that a value that holds another one is hidden whole. */
const sorted = (pairs: readonly Hidden[]): Hidden[] => pairs.toSorted((a, b) => b.value.length - a.value.length);
