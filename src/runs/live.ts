/**
 * Who wants to know at once that something happened to a run. It carries no data: whoever is told reads the
 * database, so a message that is missed or doubled does no harm.
 */
export interface Live {
  /** Calls `listener` after each commit that added events to the run, until the answer is called. */
  onEvents(runId: string, listener: () => void): () => void;
  announceEvents(runId: string): void;
  /** Calls `listener` when something waits in the queue or is to be cancelled. */
  onWork(listener: () => void): () => void;
  announceWork(): void;
  /** Calls `listener` when secrets or lists of hosts of the workspace have changed. It must not reject. */
  onEgress(workspaceId: string, listener: () => Promise<void>): () => void;
  /** Resolves when every run under way here goes by the change. */
  announceEgress(workspaceId: string): Promise<void>;
}

export function createLive(): Live {
  const byRun = new Map<string, Set<() => void>>();
  const workers = new Set<() => void>();
  const byWorkspace = new Map<string, Set<() => Promise<void>>>();
  return {
    onEvents(runId, listener) {
      const listeners = byRun.get(runId) ?? new Set();
      byRun.set(runId, listeners.add(listener));
      return () => {
        listeners.delete(listener);
        if (listeners.size === 0 && byRun.get(runId) === listeners) byRun.delete(runId);
      };
    },
    announceEvents(runId) {
      for (const listener of byRun.get(runId) ?? []) listener();
    },
    onWork(listener) {
      workers.add(listener);
      return () => void workers.delete(listener);
    },
    announceWork() {
      for (const listener of workers) listener();
    },
    onEgress(workspaceId, listener) {
      const listeners = byWorkspace.get(workspaceId) ?? new Set();
      byWorkspace.set(workspaceId, listeners.add(listener));
      return () => {
        listeners.delete(listener);
        if (listeners.size === 0 && byWorkspace.get(workspaceId) === listeners) byWorkspace.delete(workspaceId);
      };
    },
    async announceEgress(workspaceId) {
      await Promise.all([...(byWorkspace.get(workspaceId) ?? [])].map((listener) => listener()));
    },
  };
}
