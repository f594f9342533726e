import { operation } from '../http/operation.ts';
import { IntegrationList } from './schema.ts';
import type { IntegrationService } from './service.ts';

export function integrationOperations({ service }: { readonly service: IntegrationService }) {
  return [
    operation({
      id: 'list_integrations',
      summary: 'List integrations with their repositories and resources',
      method: 'GET',
      path: '/integrations',
      status: 200,
      output: IntegrationList,
      run: ({ principal }) => service.list(principal.workspaceId),
    }),
  ];
}
