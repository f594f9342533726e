import { type Sandbox, SandboxFailure, type SandboxProcess } from '../../src/sandbox/sandbox.ts';

/** The sandbox port of one process of the server: once its life has ended, nothing that it asks for is done. */
export function mortal(sandbox: Sandbox, life: { readonly ended: boolean }): Sandbox {
  const alive =
    <A extends unknown[], R>(work: (...given: A) => Promise<R>) =>
    async (...given: A): Promise<R> => {
      if (life.ended) throw new SandboxFailure('unavailable', 'This process of the server has ended');
      return work(...given);
    };
  const handle = (process: SandboxProcess): SandboxProcess => ({
    ...process,
    diagnostics: alive(process.diagnostics),
    stop: alive(process.stop),
    remove: alive(process.remove),
  });
  return {
    check: alive(sandbox.check),
    lookInside: alive(sandbox.lookInside),
    start: alive(async (spec) => handle(await sandbox.start(spec))),
    adopt: alive(async (runId, turn) => {
      const process = await sandbox.adopt(runId, turn);
      return process && handle(process);
    }),
    inspect: alive(sandbox.inspect),
    hasVolumes: alive(sandbox.hasVolumes),
    discard: alive(sandbox.discard),
    leftovers: alive(sandbox.leftovers),
    close: () => sandbox.close(),
  };
}
