import { z } from 'zod';
import { operation } from '../http/operation.ts';
import { Automation, AutomationCreate, AutomationListItem, AutomationPatch } from './schema.ts';
import type { AutomationService } from './service.ts';

const AutomationParams = z.object({ automationId: z.guid().toLowerCase() });
const OneAutomation = z.object({ automation: Automation });

export function automationOperations({ service }: { readonly service: AutomationService }) {
  return [
    operation({
      id: 'list_automations',
      summary: 'List automations, most recently changed first',
      method: 'GET',
      path: '/automations',
      status: 200,
      output: z.object({ automations: z.array(AutomationListItem) }),
      run: async ({ principal }) => ({ automations: await service.list(principal.workspaceId) }),
    }),
    operation({
      id: 'create_automation',
      summary: 'Create an automation',
      method: 'POST',
      path: '/automations',
      status: 201,
      body: AutomationCreate,
      output: OneAutomation,
      run: async ({ body, principal }) => ({
        automation: await service.create(principal.workspaceId, principal.userId, body),
      }),
    }),
    operation({
      id: 'get_automation',
      summary: 'Read an automation',
      method: 'GET',
      path: '/automations/:automationId',
      status: 200,
      params: AutomationParams,
      output: OneAutomation,
      run: async ({ params, principal }) => ({
        automation: await service.get(principal.workspaceId, params.automationId),
      }),
    }),
    operation({
      id: 'update_automation',
      summary: 'Change an automation',
      method: 'PATCH',
      path: '/automations/:automationId',
      status: 200,
      params: AutomationParams,
      body: AutomationPatch.optional(),
      output: OneAutomation,
      run: async ({ params, body, principal }) => ({
        automation: await service.update(principal.workspaceId, principal.userId, params.automationId, body ?? {}),
      }),
    }),
  ];
}
