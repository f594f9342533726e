import { z } from 'zod';

export const Integration = z.object({
  id: z.guid(),
  provider: z.string(),
  displayName: z.string(),
});
export type Integration = z.infer<typeof Integration>;

export const Repository = z.object({
  id: z.guid(),
  integrationAccountId: z.guid(),
  fullName: z.string(),
  defaultBranch: z.string(),
  private: z.boolean(),
});
export type Repository = z.infer<typeof Repository>;

/** Something within an integration that triggers and notifications name, such as a channel or a project. */
export const Resource = z.object({
  id: z.guid(),
  integrationAccountId: z.guid(),
  externalId: z.string(),
  displayName: z.string(),
  kind: z.string(),
});
export type Resource = z.infer<typeof Resource>;

export const IntegrationList = z.object({
  integrations: z.array(Integration),
  repositories: z.array(Repository),
  resources: z.array(Resource),
});
export type IntegrationList = z.infer<typeof IntegrationList>;

/** What it takes to connect a git repository. No message repeats what was given: it may hold a credential. */
export const GitConnection = z.object({
  url: z.string().trim().min(1, 'Must not be empty').max(2048, 'Must be at most 2048 characters'),
  name: z
    .string()
    .trim()
    .min(1, 'Must not be empty')
    .max(120, 'Must be at most 120 characters')
    .refine((name) => name.isWellFormed() && !/\p{Cc}/u.test(name), 'Must not hold control characters')
    .optional(),
  token: z
    .string()
    .min(1, 'Must not be empty')
    .max(4096, 'Must be at most 4096 characters')
    .regex(/^[\x21-\x7e]*$/, 'Must be printable ASCII without spaces')
    .optional(),
});
export type GitConnection = z.input<typeof GitConnection>;
