/** When a schedule trigger fires: on every local hour, or at a local hour each day or on one weekday. */
export interface Schedule {
  readonly frequency: 'hourly' | 'daily' | 'weekly';
  /** Local hour, 0 to 23; hourly schedules do not look at it. */
  readonly hour: number;
  /** Local day, 0 is Sunday; only weekly schedules look at it. */
  readonly weekday: number;
  /** IANA time zone name. */
  readonly timezone: string;
}

/**
 * The schedule's first slot later than `afterMs`, in milliseconds since 1970.
 *
 * A local time that a spring gap skips fires at the first instant after the gap; one that an autumn overlap repeats
 * fires once, the first time. An hourly schedule fires on every hour that really passes, so it has no gap and no
 * doubt: 23 slots on the day of a one-hour gap and 25 on the day of a one-hour overlap.
 */
export function nextSlot(schedule: Schedule, afterMs: number): number {
  const after = Temporal.Instant.fromEpochMilliseconds(afterMs).toZonedDateTimeISO(schedule.timezone);
  if (schedule.frequency === 'hourly') return nextHour(after).epochMilliseconds;

  // A zone that skips a whole day moves a slot by up to two days, so a week is not far enough for a weekly one.
  for (let days = 0; days <= 16; days += 1) {
    const date = after.toPlainDate().add({ days });
    if (schedule.frequency === 'weekly' && date.dayOfWeek % 7 !== schedule.weekday) continue;
    const slotMs = slotOn(date, schedule.hour, schedule.timezone).epochMilliseconds;
    if (slotMs > afterMs) return slotMs;
  }
  throw new RangeError(`No slot within 16 days in ${schedule.timezone}`);
}

/** True for a name of the IANA time zone database. Bare offsets such as `+01:00` are no names. */
export function isTimeZone(name: string): boolean {
  if (!/^[A-Za-z]/.test(name)) return false;
  try {
    Temporal.Instant.fromEpochMilliseconds(0).toZonedDateTimeISO(name);
    return true;
  } catch {
    return false;
  }
}

function slotOn(date: Temporal.PlainDate, hour: number, timeZone: string): Temporal.ZonedDateTime {
  const wanted = date.toPlainDateTime({ hour });
  const slot = wanted.toZonedDateTime(timeZone, { disambiguation: 'compatible' });
  if (slot.toPlainDateTime().equals(wanted)) return slot;
  // In a gap "compatible" moves the time on by the gap's length. The slot is the gap's end, which may be earlier.
  return slot.add({ nanoseconds: 1 }).getTimeZoneTransition('previous') ?? slot;
}

/** The next instant whose local minute is 0. A change of the clock by less than an hour can move it once more. */
function nextHour(after: Temporal.ZonedDateTime): Temporal.ZonedDateTime {
  const minute = after.round({ smallestUnit: 'minute', roundingMode: 'floor' });
  const next = minute.add({ minutes: 60 - minute.minute });
  return next.minute === 0 ? next : nextHour(next);
}
