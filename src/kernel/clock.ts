/** The time of day in milliseconds since 1970. Passed in wherever time decides, so that tests can set it. */
export type Clock = () => number;

export const systemClock: Clock = () => Date.now();

/** ISO 8601 in UTC with milliseconds, the only form in which area A shows a time. */
export const iso = (ms: number): string => new Date(ms).toISOString();

/** As `iso`, for a time that may be missing. */
export const isoOrNull = (ms: number | null): string | null => (ms === null ? null : iso(ms));
