import { z } from 'zod';

export const Role = z.enum(['owner', 'admin', 'member']);

/** The workspace that a key belongs to, and the member whom the key acts as. */
export const Workspace = z.object({
  id: z.guid(),
  name: z.string(),
  slug: z.string(),
  createdAt: z.iso.datetime(),
  apiKeyId: z.guid().meta({ description: 'The key that asked' }),
  capabilities: z.array(z.string()),
  member: z.object({ userId: z.guid(), name: z.string(), email: z.string(), role: Role }),
});
export type Workspace = z.infer<typeof Workspace>;
