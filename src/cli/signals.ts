/** A signal that comes again so soon was the same one, sent both to the group and by whoever started us. */
const sameSignalMs = 1000;

/** Resolves when the process is told to stop. Told again later, by somebody who does not want to wait, it ends at once. */
export function toldToStop(): Promise<void> {
  const told = Promise.withResolvers<void>();
  let toldAt: number | null = null;
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.on(signal, () => {
      if (toldAt !== null && performance.now() - toldAt > sameSignalMs) process.exit(130);
      toldAt ??= performance.now();
      told.resolve();
    });
  }
  return told.promise;
}
