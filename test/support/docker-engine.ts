import Docker from 'dockerode';

/** The engine that the tests use, as it is seen past the server. */
export const engine = new Docker({ socketPath: '/var/run/docker.sock' });

const labelOfRun = 'slipway.run';

export const containersOf = (runId: string) =>
  engine.listContainers({ all: true, filters: { label: [`${labelOfRun}=${runId}`] } });

export async function volumesOf(runId: string): Promise<string[]> {
  const filters = JSON.stringify({ label: [`${labelOfRun}=${runId}`] });
  const { Volumes } = await engine.listVolumes({ filters: filters as never });
  return (Volumes ?? []).map(({ Name }) => Name);
}

/** The container of a run's turn under way, by what it is for. */
export async function containerOf(runId: string, role: 'agent' | 'door'): Promise<Docker.Container> {
  const found = (await containersOf(runId)).find(({ Labels }) => Labels['slipway.role'] === role);
  if (!found) throw new Error(`the run has no ${role}`);
  return engine.getContainer(found.Id);
}

/** Resolves when the engine has no container of the run any more. */
export async function withoutContainers(runId: string): Promise<void> {
  const filters = { type: ['container'], event: ['destroy'], label: [`${labelOfRun}=${runId}`] };
  const events = (await engine.getEvents({ filters: JSON.stringify(filters) as never })) as NodeJS.ReadableStream & {
    destroy(): void;
  };
  try {
    if ((await containersOf(runId)).length === 0) return;
    for await (const _ of events) if ((await containersOf(runId)).length === 0) return;
  } finally {
    events.destroy();
  }
}

/** Takes everything away that the engine holds of a run, whatever state it is in. */
export async function removeAllOf(runId: string): Promise<void> {
  const gone = (error: { statusCode?: number }) => {
    if (error.statusCode !== 404 && error.statusCode !== 409) throw error;
  };
  for (const { Id } of await containersOf(runId)) await engine.getContainer(Id).remove({ force: true }).catch(gone);
  for (const name of await volumesOf(runId)) await engine.getVolume(name).remove({ force: true }).catch(gone);
}
