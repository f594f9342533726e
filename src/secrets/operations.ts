import { z } from 'zod';
import { operation } from '../http/operation.ts';
import { NewSecret, Secret, SecretPatch } from './schema.ts';
import type { SecretService } from './service.ts';

const SecretParams = z.object({ secretId: z.guid().toLowerCase() });

export function secretOperations({ service }: { readonly service: SecretService }) {
  return [
    operation({
      id: 'list_secrets',
      summary: 'List workspace secrets, newest first; values are never shown',
      method: 'GET',
      path: '/secrets',
      status: 200,
      output: z.object({ secrets: z.array(Secret) }),
      run: async ({ principal }) => ({ secrets: await service.list(principal.workspaceId) }),
    }),
    operation({
      id: 'create_secret',
      summary: 'Create a workspace secret',
      method: 'POST',
      path: '/secrets',
      status: 201,
      body: NewSecret,
      output: z.object({ secret: Secret }),
      run: async ({ body, principal }) => ({ secret: await service.create(principal.workspaceId, body) }),
    }),
    operation({
      id: 'update_secret',
      summary: 'Rotate or change a workspace secret; open runs go by it at once',
      method: 'PATCH',
      path: '/secrets/:secretId',
      status: 200,
      params: SecretParams,
      body: SecretPatch.optional(),
      output: z.object({ secret: Secret }),
      run: async ({ params, body, principal }) => ({
        secret: await service.update(principal.workspaceId, params.secretId, body ?? {}),
      }),
    }),
    operation({
      id: 'delete_secret',
      summary: 'Delete a workspace secret; no open run can use it from then on',
      method: 'DELETE',
      path: '/secrets/:secretId',
      status: 200,
      params: SecretParams,
      query: z.object({
        detach: z
          .enum(['true', 'false'])
          .default('false')
          .meta({ description: 'Take it out of the automations that use it, each as a new version' }),
      }),
      output: z.object({ deleted: z.literal(true) }),
      async run({ params, query, principal }) {
        const detach = query.detach === 'true';
        await service.remove(principal.workspaceId, principal.userId, params.secretId, { detach });
        return { deleted: true as const };
      },
    }),
  ];
}
