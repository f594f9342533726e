import { z } from 'zod';
import { operation } from '../http/operation.ts';
import { Workspace, WorkspacePatch } from './schema.ts';
import type { AccessService } from './service.ts';

export function accessOperations({ service }: { readonly service: AccessService }) {
  return [
    operation({
      id: 'get_workspace',
      summary: 'Read the workspace that the key belongs to',
      method: 'GET',
      path: '/workspace',
      status: 200,
      output: z.object({ workspace: Workspace }),
      run: async ({ principal }) => ({ workspace: await service.workspace(principal) }),
    }),
    operation({
      id: 'update_workspace',
      summary: 'Change what holds for every run of the workspace; owner and admin only',
      method: 'PATCH',
      path: '/workspace',
      status: 200,
      body: WorkspacePatch.optional(),
      output: z.object({ workspace: Workspace }),
      run: async ({ body, principal }) => ({ workspace: await service.updateWorkspace(principal, body ?? {}) }),
    }),
  ];
}
