import type { GatewayRecord, ModelFailure } from './gateway.ts';

/** Keeps what happened in one turn: the requests in the order in which they began, whatever order they end in. */
export interface Recorder {
  /** A request has come in: its place in the order. */
  begin(): number;
  /** It was counted against the run's limit and may leave. */
  counted(): void;
  /** It ended; `failure` is null when it succeeded. */
  ended(place: number, failure: ModelFailure | null, upstreamStatus: number | null): void;
  /** Marks the run's limit as hit; true the first time. */
  limitHit(): boolean;
  snapshot(): GatewayRecord;
}

export function createRecorder(): Recorder {
  let begun = 0;
  let newestEnded = 0;
  let record: GatewayRecord = {
    requests: 0,
    succeeded: 0,
    lastFailure: null,
    lastStatus: null,
    requestLimitHit: false,
  };
  return {
    begin() {
      begun += 1;
      return begun;
    },
    counted() {
      record = { ...record, requests: record.requests + 1 };
    },
    ended(place, failure, upstreamStatus) {
      if (failure === null) record = { ...record, succeeded: record.succeeded + 1 };
      if (place < newestEnded) return;
      newestEnded = place;
      record = { ...record, lastFailure: failure, lastStatus: upstreamStatus };
    },
    limitHit() {
      const first = !record.requestLimitHit;
      record = { ...record, requestLimitHit: true };
      return first;
    },
    snapshot: () => record,
  };
}
