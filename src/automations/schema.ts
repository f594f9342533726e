import { isDeepStrictEqual } from 'node:util';
import { z } from 'zod';
import { EgressPolicy, openPolicy } from '../access/schema.ts';
import type { Issue } from '../kernel/fault.ts';
import { RunStatus } from '../runs/schema.ts';
import { isTimeZone } from './schedule.ts';

/** Text that every store and every client can hold: neither lone surrogates nor NUL. */
const isPlainText = (text: string): boolean => text.isWellFormed() && !text.includes('\0');
const plain = (string: z.ZodString, most: number) =>
  string
    .max(most, { error: `Must be at most ${most} characters`, abort: true })
    // zod's own limit counts code points; the interface counts UTF-16 units.
    .refine((value) => value.length <= most, `Must be at most ${most} characters`)
    .refine(isPlainText, 'Must hold neither NUL nor lone surrogates');
const text = (most: number) => plain(z.string(), most);
const trimmed = (most: number) => plain(z.string().trim(), most);

/** An identifier as callers send it. Ids are stored in lower case; UUIDs are the same in any. */
const reference = () => z.guid().toLowerCase();

/** Two items are the same whatever the order of the lists within them. */
const keyOf = (item: unknown): string =>
  JSON.stringify(item, (_, value: unknown) => (Array.isArray(value) ? [...value].sort() : value));

/** Looks at lists even when some of their items are invalid, so that every issue is reported at once. */
const whenList = { when: (payload: { value: unknown }) => Array.isArray(payload.value) };

/** A list without duplicates; the issue names the later item. */
const unique = <T extends z.ZodType>(item: T, most: number, least = 0) =>
  z
    .array(item)
    .min(least)
    .max(most)
    .superRefine((items, context) => {
      const seen = new Set<string>();
      for (const [position, value] of items.entries()) {
        const key = keyOf(value);
        if (seen.has(key)) context.addIssue({ code: 'custom', message: 'Duplicate item', path: [position] });
        seen.add(key);
      }
    }, whenList);

const externalId = () => text(255).min(1);

const SlackTrigger = z.object({
  kind: z.literal('slack'),
  integrationAccountId: reference(),
  channelIds: unique(externalId(), 50, 1),
  eventMode: z.enum(['mentions', 'every_message', 'both']),
});

const SentryTrigger = z.object({
  kind: z.literal('sentry'),
  integrationAccountId: reference(),
  projectIds: unique(externalId(), 100, 1),
  eventTypes: unique(z.enum(['new_issue', 'regression']), 2, 1),
  excludedEnvironments: unique(text(64).min(1), 100).default([]),
});

const DiscordTrigger = z.object({
  kind: z.literal('discord'),
  integrationAccountId: reference(),
  channelIds: unique(externalId(), 50, 1),
});

const ScheduleTrigger = z.object({
  kind: z.literal('schedule'),
  frequency: z.enum(['hourly', 'daily', 'weekly']),
  hour: z.int().min(0).max(23),
  weekday: z.int().min(0).max(6),
  timezone: z.string().min(1).max(64).refine(isTimeZone, 'Must be the name of an IANA time zone'),
});

export const Trigger = z.discriminatedUnion('kind', [SlackTrigger, SentryTrigger, DiscordTrigger, ScheduleTrigger]);
export type Trigger = z.infer<typeof Trigger>;

export const Notification = z.object({
  kind: z.literal('slack'),
  channelId: externalId(),
  integrationAccountId: reference(),
});
export type Notification = z.infer<typeof Notification>;

/** Every field of a configuration, without defaults: a PATCH must not fill in what it was not sent. */
const fields = {
  prompt: text(50_000)
    .min(1, { error: 'Must not be blank', abort: true })
    .refine((prompt) => prompt.trim() !== '', 'Must not be blank'),
  repositoryIds: unique(reference(), 10, 1),
  triggers: unique(Trigger, 10, 1),
  contextAccountIds: unique(reference(), 50),
  notifications: unique(Notification, 10),
  workspaceSecretIds: unique(reference(), 20),
  harness: z.enum(['codex', 'claude_agent_sdk', 'opencode']),
  modelProvider: z.enum(['openai', 'anthropic', 'google', 'xai', 'mistral', 'deepseek']),
  model: trimmed(255)
    .min(1, { error: 'Must not be blank', abort: true })
    .regex(/^[A-Za-z0-9][A-Za-z0-9._:/-]*$/),
  maxModelRequests: z.int().min(1).max(1000),
  maxOutputTokensPerRequest: z.int().min(256).max(100_000),
  maxRuntimeSeconds: z.int().min(60).max(3600),
  toolPolicy: z.literal('full'),
  egress: EgressPolicy,
};

export const Configuration = z.object(fields);
export type Configuration = z.infer<typeof Configuration>;

/** A configuration as it was saved, with what versions that are older than a field do not say. */
export const completed = (saved: Omit<Configuration, 'egress'> & Partial<Configuration>): Configuration => ({
  ...saved,
  egress: saved.egress ?? openPolicy,
});

/** True when both say the same, whatever the order of their keys. The order of lists counts: it is the caller's. */
export const sameConfiguration = (a: Configuration, b: Configuration): boolean => isDeepStrictEqual(a, b);

/** Results are posted for scheduled and Sentry runs only. Paths start at the configuration. */
export function notificationIssues(configuration: {
  readonly notifications: readonly unknown[];
  readonly triggers: readonly { readonly kind: string }[];
}): Issue[] {
  if (configuration.notifications.length === 0) return [];
  if (configuration.triggers.some(({ kind }) => kind === 'schedule' || kind === 'sentry')) return [];
  return [{ path: ['notifications'], message: 'Notifications need a schedule or sentry trigger' }];
}

/** Both lists could be read, whatever else is wrong with the configuration. */
const ListsOfKinds = z.object({
  notifications: z.array(z.unknown()).min(1),
  triggers: z.array(z.object({ kind: z.string() })).min(1),
});

const NewConfiguration = Configuration.extend({
  contextAccountIds: fields.contextAccountIds.default([]),
  notifications: fields.notifications.default([]),
  workspaceSecretIds: fields.workspaceSecretIds.default([]),
  harness: fields.harness.default('codex'),
  modelProvider: fields.modelProvider.default('openai'),
  model: fields.model.default('gpt-5.4'),
  maxModelRequests: fields.maxModelRequests.default(500),
  maxOutputTokensPerRequest: fields.maxOutputTokensPerRequest.default(32_000),
  maxRuntimeSeconds: fields.maxRuntimeSeconds.default(1800),
  toolPolicy: fields.toolPolicy.default('full'),
  egress: fields.egress.default(openPolicy),
}).superRefine(
  (configuration, context) => {
    for (const { path, message } of notificationIssues(configuration)) {
      context.addIssue({ code: 'custom', path: [...path], message });
    }
  },
  { when: (payload) => ListsOfKinds.safeParse(payload.value).success },
);

const name = trimmed(120).min(1);
const description = trimmed(2000);

export const AutomationCreate = z.object({
  name,
  description: description.default(''),
  enabled: z.boolean().default(true),
  configuration: NewConfiguration,
});
export type AutomationCreate = z.infer<typeof AutomationCreate>;

export const AutomationPatch = z.object({
  name: name.optional(),
  description: description.optional(),
  enabled: z.boolean().optional(),
  configuration: Configuration.partial().optional(),
});
export type AutomationPatch = z.infer<typeof AutomationPatch>;

/** One automation, whole. */
export const Automation = z.object({
  id: z.guid(),
  name: z.string(),
  description: z.string(),
  enabled: z.boolean(),
  version: z.int().meta({ description: 'Counts up when the configuration changes' }),
  createdAt: z.iso.datetime(),
  updatedAt: z.iso.datetime(),
  configuration: Configuration,
});
export type Automation = z.infer<typeof Automation>;

export const AutomationListItem = Automation.omit({ configuration: true }).extend({
  harness: Configuration.shape.harness,
  model: z.string(),
  modelProvider: Configuration.shape.modelProvider,
  triggers: z.array(Trigger),
  lastRun: z.object({ id: z.guid(), status: RunStatus, createdAt: z.iso.datetime() }).nullable(),
  nextRunAt: z.iso.datetime().nullable().meta({ description: 'The next slot of its schedules; null when off' }),
});
export type AutomationListItem = z.infer<typeof AutomationListItem>;
