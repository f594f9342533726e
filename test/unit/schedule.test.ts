import { describe, expect, test } from 'bun:test';
import { isTimeZone, nextSlot, type Schedule } from '../../src/automations/schedule.ts';

const at = (text: string) => Temporal.Instant.from(text).epochMilliseconds;
const next = (schedule: Schedule, after: string) => new Date(nextSlot(schedule, at(after))).toISOString().slice(0, 16);
const hourly = (timezone: string): Schedule => ({ frequency: 'hourly', hour: 0, weekday: 0, timezone });
const daily = (hour: number, timezone: string): Schedule => ({ frequency: 'daily', hour, weekday: 0, timezone });
const weekly = (weekday: number, hour: number, timezone: string): Schedule => ({
  frequency: 'weekly',
  hour,
  weekday,
  timezone,
});

describe('a schedule fires next', () => {
  test.each<[string, Schedule, string, string]>([
    ['later the same day', daily(9, 'UTC'), '2026-01-05T08:59:59.999Z', '2026-01-05T09:00'],
    ['a day later when the slot is now', daily(9, 'UTC'), '2026-01-05T09:00:00Z', '2026-01-06T09:00'],
    ['at the local hour', daily(9, 'Asia/Kolkata'), '2026-01-05T00:00:00Z', '2026-01-05T03:30'],
    ['across the end of a year', daily(0, 'UTC'), '2026-12-31T12:00:00Z', '2027-01-01T00:00'],
    ['on its Sunday', weekly(0, 9, 'UTC'), '2026-01-05T00:00:00Z', '2026-01-11T09:00'],
    ['on its Saturday', weekly(6, 9, 'UTC'), '2026-01-05T00:00:00Z', '2026-01-10T09:00'],
    ['a week later when the slot is now', weekly(1, 9, 'UTC'), '2026-01-05T09:00:00Z', '2026-01-12T09:00'],
    ['on the local weekday', weekly(1, 1, 'Asia/Tokyo'), '2026-01-03T00:00:00Z', '2026-01-04T16:00'],
    ['on the next hour', hourly('UTC'), '2026-01-05T08:59:59.999Z', '2026-01-05T09:00'],
    ['an hour later when the slot is now', hourly('UTC'), '2026-01-05T09:00:00Z', '2026-01-05T10:00'],
    ['on the local hour', hourly('Asia/Kolkata'), '2026-01-05T09:00:00Z', '2026-01-05T09:30'],
    // Paris, 29 March 2026: 02:00 to 03:00 does not exist.
    ['at the end of a gap', daily(2, 'Europe/Paris'), '2026-03-28T12:00:00Z', '2026-03-29T01:00'],
    ['as usual on the day after a gap', daily(2, 'Europe/Paris'), '2026-03-29T01:00:00Z', '2026-03-30T00:00'],
    ['in the hour after a gap', hourly('Europe/Paris'), '2026-03-29T00:30:00Z', '2026-03-29T01:00'],
    // Lord Howe, 4 October 2026: 02:00 to 02:30.
    ['at the end of a gap of 30 minutes', daily(2, 'Australia/Lord_Howe'), '2026-10-03T12:00:00Z', '2026-10-03T15:30'],
    ['half an hour after such a gap', hourly('Australia/Lord_Howe'), '2026-10-03T15:30:00Z', '2026-10-03T16:00'],
    // Beirut, 29 March 2026: midnight does not exist.
    ['at the end of a gap at midnight', daily(0, 'Asia/Beirut'), '2026-03-28T12:00:00Z', '2026-03-28T22:00'],
    // Apia had no 30 December 2011.
    ['at the end of a missing day', daily(9, 'Pacific/Apia'), '2011-12-30T00:00:00Z', '2011-12-30T10:00'],
    // Paris, 25 October 2026: 02:00 to 03:00 comes twice.
    ['the first time in an overlap', daily(2, 'Europe/Paris'), '2026-10-24T12:00:00Z', '2026-10-25T00:00'],
    ['not a second time in an overlap', daily(2, 'Europe/Paris'), '2026-10-25T00:00:00Z', '2026-10-26T01:00'],
    ['in each hour of an overlap', hourly('Europe/Paris'), '2026-10-25T00:00:00Z', '2026-10-25T01:00'],
  ])('%s', (_, schedule, after, expected) => {
    expect(next(schedule, after)).toBe(expected);
  });

  test('once a day through a whole year, gap and overlap included', () => {
    const days = new Set<string>();
    let slotMs = at('2025-12-31T22:59:00Z');
    for (let day = 0; day < 365; day += 1) {
      slotMs = nextSlot(daily(2, 'Europe/Paris'), slotMs);
      days.add(
        Temporal.Instant.fromEpochMilliseconds(slotMs).toZonedDateTimeISO('Europe/Paris').toPlainDate().toString(),
      );
    }
    expect(days.size).toBe(365);
    expect([...days].at(-1)).toBe('2026-12-31');
  });
});

test.each([
  ['Europe/Paris', true],
  ['UTC', true],
  ['America/Argentina/Buenos_Aires', true],
  ['Etc/GMT+5', true],
  ['+01:00', false],
  ['Europe/Nowhere', false],
  ['GMT+1', false],
  ['', false],
  [' UTC', false],
])('%p as the name of a time zone: %p', (name, expected) => {
  expect(isTimeZone(name)).toBe(expected);
});
