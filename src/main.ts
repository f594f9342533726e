import { processTerminal } from './cli/command.ts';
import { dispatch } from './cli/dispatch.ts';

process.exitCode = await dispatch(
  process.argv.slice(2),
  {
    serve: () => import('./cli/serve.ts'),
    init: () => import('./cli/init.ts'),
    integration: () => import('./cli/integration.ts'),
    sandbox: () => import('./cli/sandbox.ts'),
    demo: () => import('./demo/demo.ts'),
    version: () => import('./cli/version.ts'),
  },
  processTerminal,
);
