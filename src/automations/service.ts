import type { Transaction } from '../db/database.ts';
import { type Clock, iso, isoOrNull } from '../kernel/clock.ts';
import { absent, conflict, invalid } from '../kernel/fault.ts';
import { newId } from '../kernel/id.ts';
import { checkReferences, type References } from './references.ts';
import { nextSlot } from './schedule.ts';
import {
  type Automation,
  type AutomationCreate,
  type AutomationListItem,
  type AutomationPatch,
  type Configuration,
  notificationIssues,
  sameConfiguration,
} from './schema.ts';
import type { AutomationStore, LastRun, StoredAutomation } from './store.ts';

export interface AutomationNeeds {
  readonly store: AutomationStore;
  readonly references: References;
  readonly clock: Clock;
  /** Told of a committed change that open runs have to heed; what answers the caller waits for it. */
  changed?(workspaceId: string): Promise<void>;
}

/** The rules of automations. `userId` is who is recorded as having made a version. */
export function automationService({ store, references, clock, changed }: AutomationNeeds) {
  return {
    async create(workspaceId: string, userId: string, wanted: AutomationCreate): Promise<Automation> {
      await checkReferences(references, workspaceId, wanted.configuration);
      const now = clock();
      const automation = { ...wanted, id: newId(), version: 1, createdAt: now, updatedAt: now };
      if (!(await store.insert(workspaceId, userId, automation))) throw nameTaken(wanted.name);
      return shown(automation);
    },

    /** Each field sent replaces the present value. A new version is saved when the configuration really changes. */
    async update(workspaceId: string, userId: string, id: string, patch: AutomationPatch): Promise<Automation> {
      const sent = patch.configuration ?? {};
      await checkReferences(references, workspaceId, sent);
      const result = await store.update(workspaceId, userId, id, (current) => patched(current, patch, clock()));
      if (result === undefined) throw notFound();
      if (result === 'name_taken') throw nameTaken(patch.name ?? '');
      if (sent.egress !== undefined) await changed?.(workspaceId);
      return shown(result);
    },

    async list(workspaceId: string): Promise<AutomationListItem[]> {
      const now = clock();
      const automations = await store.list(workspaceId);
      return automations.map((automation) => listed(automation, now));
    },

    async get(workspaceId: string, id: string): Promise<Automation> {
      const found = await store.find(workspaceId, id);
      if (!found) throw notFound();
      return shown(found);
    },

    /** As `get`, with times in milliseconds, or undefined. */
    find: (workspaceId: string, id: string): Promise<StoredAutomation | undefined> => store.find(workspaceId, id),

    /** The configuration of one version: what a run that is pinned to it works with. */
    configurationOf: (automationId: string, version: number): Promise<Configuration | undefined> =>
      store.configurationOf(automationId, version),

    /** Names of the automations whose present version has the secret. */
    async usingSecret(tx: Transaction, workspaceId: string, secretId: string): Promise<string[]> {
      return (await store.usingSecret(tx, workspaceId, secretId)).map(({ name }) => name);
    },

    /** Takes a secret out of every automation that has it, each as a new version. */
    async detachSecret(tx: Transaction, workspaceId: string, secretId: string, userId: string, at: number) {
      for (const automation of await store.usingSecret(tx, workspaceId, secretId)) {
        const { configuration, version } = automation;
        const workspaceSecretIds = configuration.workspaceSecretIds.filter((id) => id !== secretId);
        await store.saveVersion(tx, userId, {
          ...automation,
          version: version + 1,
          configuration: { ...configuration, workspaceSecretIds },
          updatedAt: at,
        });
      }
    },

    /** What starting a run needs to know; undefined when the workspace has no such automation. */
    startable: (workspaceId: string, automationId: string) => store.startable(workspaceId, automationId),
  };
}
export type AutomationService = ReturnType<typeof automationService>;

const notFound = () => absent('automation_not_found', 'Automation not found');
const nameTaken = (name: string) =>
  conflict('automation_name_taken', `An automation named "${name}" already exists. Choose a different name.`);

/** The automation as the patch makes it; the very same object where it changes nothing. */
function patched(current: StoredAutomation, patch: AutomationPatch, now: number): StoredAutomation {
  const configuration = withSent(current.configuration, patch.configuration ?? {});
  const issues = notificationIssues(configuration);
  if (issues.length > 0) throw invalid(issues.map((issue) => ({ ...issue, path: ['configuration', ...issue.path] })));

  const name = patch.name ?? current.name;
  const description = patch.description ?? current.description;
  const enabled = patch.enabled ?? current.enabled;
  const reconfigured = !sameConfiguration(configuration, current.configuration);
  const renamed = name !== current.name || description !== current.description || enabled !== current.enabled;
  if (!reconfigured && !renamed) return current;
  return {
    ...current,
    name,
    description,
    enabled,
    configuration: reconfigured ? configuration : current.configuration,
    version: reconfigured ? current.version + 1 : current.version,
    updatedAt: now,
  };
}

function withSent(current: Configuration, sent: NonNullable<AutomationPatch['configuration']>): Configuration {
  const given = Object.entries(sent).filter(([, value]) => value !== undefined);
  return { ...current, ...Object.fromEntries(given) };
}

const shown = (automation: StoredAutomation): Automation => ({
  id: automation.id,
  name: automation.name,
  description: automation.description,
  enabled: automation.enabled,
  version: automation.version,
  createdAt: iso(automation.createdAt),
  updatedAt: iso(automation.updatedAt),
  configuration: automation.configuration,
});

function listed(automation: StoredAutomation & { lastRun: LastRun | null }, now: number): AutomationListItem {
  const { configuration, ...rest } = shown(automation);
  return {
    ...rest,
    harness: configuration.harness,
    model: configuration.model,
    modelProvider: configuration.modelProvider,
    triggers: configuration.triggers,
    lastRun: automation.lastRun && { ...automation.lastRun, createdAt: iso(automation.lastRun.createdAt) },
    nextRunAt: isoOrNull(automation.enabled ? nextRunAfter(configuration, now) : null),
  };
}

/** The earliest slot of the schedule triggers, or null where there is none. */
function nextRunAfter(configuration: Configuration, now: number): number | null {
  const slots = configuration.triggers.flatMap((trigger) =>
    trigger.kind === 'schedule' ? [nextSlot(trigger, now)] : [],
  );
  return slots.length === 0 ? null : Math.min(...slots);
}
