import { z } from 'zod';
import { hostList } from '../secrets/schema.ts';

export const Role = z.enum(['owner', 'admin', 'member']);

/** The most hosts that one list may name. */
const mostHosts = 100;

/** Which hosts runs may reach. It holds for a whole workspace or for one automation; each of the two must allow. */
export const EgressPolicy = z
  .object({
    default: z.enum(['allow', 'deny']).meta({ description: 'What holds for every host that is not listed' }),
    hosts: hostList(0, mostHosts).meta({
      description: `The exceptions to it, up to ${mostHosts}, written as a secret's allowedHosts`,
    }),
  })
  .meta({
    description:
      "Which hosts runs may reach; the workspace's list and the automation's must both allow one. With `deny`, only the " +
      "listed hosts and those of the run's own git repositories can be reached: the hosts of its secrets have to be " +
      'listed, for a secret says where its value may go and not what may be reached. With `allow`, a listed host cannot ' +
      'be reached, also not for git. The model is always reached. A change holds for open runs at once.',
  });
export type EgressPolicy = z.infer<typeof EgressPolicy>;

/** What holds where nothing was said: every public host may be reached. */
export const openPolicy: EgressPolicy = { default: 'allow', hosts: [] };

/** What holds for a run whose automation is gone. */
export const closedPolicy: EgressPolicy = { default: 'deny', hosts: [] };

/** The workspace that a key belongs to, and the member whom the key acts as. */
export const Workspace = z.object({
  id: z.guid(),
  name: z.string(),
  slug: z.string(),
  createdAt: z.iso.datetime(),
  apiKeyId: z.guid().meta({ description: 'The key that asked' }),
  capabilities: z.array(z.string()),
  egress: EgressPolicy,
  member: z.object({ userId: z.guid(), name: z.string(), email: z.string(), role: Role }),
});
export type Workspace = z.infer<typeof Workspace>;

/** Each field sent replaces the present one. */
export const WorkspacePatch = z.object({ egress: EgressPolicy.optional() });
export type WorkspacePatch = z.infer<typeof WorkspacePatch>;
