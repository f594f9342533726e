import { z } from 'zod';
import { operation } from '../http/operation.ts';
import { NewSecret, Secret } from './schema.ts';
import type { SecretService } from './service.ts';

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
  ];
}
