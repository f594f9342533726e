import type { FailureCategory } from '../runs/schema.ts';

/** A turn cannot go on. `message` is one sentence that names the mend, with no secret and no internal address. */
export class TurnFailure extends Error {
  override readonly name = 'TurnFailure';
  readonly category: FailureCategory;
  constructor(category: FailureCategory, message: string, cause?: unknown) {
    super(message, { cause });
    this.category = category;
  }
}

/** The run belongs to another holder now: nothing may be written and nothing of its sandbox touched. */
export class LeaseLost extends Error {
  override readonly name = 'LeaseLost';
}

/** The server is stopping: the sandbox goes on, and the next process of the server adopts it. */
export class Detached extends Error {
  override readonly name = 'Detached';
}

/** A cancel came before the agent had started. */
export class CancelledEarly extends Error {
  override readonly name = 'CancelledEarly';
}
