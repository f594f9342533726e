import { checkFounding, type Founding } from '../access/founding.ts';
import { accessService, type Founded } from '../access/service.ts';
import { accessStore } from '../access/store.ts';
import { readConfig } from '../config.ts';
import { systemClock } from '../kernel/clock.ts';
import { Fault } from '../kernel/fault.ts';
import { jsonLog } from '../kernel/log.ts';
import { readArguments } from './arguments.ts';
import { type Command, type Terminal, UsageError } from './command.ts';
import { openData } from './data.ts';

const usage = `slipway init [--data-dir DIR] --owner-email EMAIL [--owner-password-stdin]
             [--organisation NAME] [--workspace NAME] [--project NAME] [--json]

  --data-dir DIR           where everything is kept (SLIPWAY_DATA_DIR; otherwise .slipway in your home directory)
  --owner-email EMAIL      the first member, who owns the workspace
  --owner-password-stdin   read the owner's password from standard input; without it one is made
  --organisation NAME      otherwise "My organisation"
  --workspace NAME         otherwise "Main"
  --project NAME           otherwise "Default"
  --json                   print one JSON object and nothing else`;

const options = {
  'data-dir': { type: 'string' },
  'owner-email': { type: 'string' },
  'owner-password-stdin': { type: 'boolean' },
  organisation: { type: 'string' },
  workspace: { type: 'string' },
  project: { type: 'string' },
  json: { type: 'boolean' },
} as const;

export const command: Command = {
  name: 'init',
  summary: 'Set up a data directory: organisation, workspace, project, owner and the first keys',
  usage,
  async run(args, terminal) {
    const { values } = readArguments(args, options);
    const ownerEmail = values['owner-email'];
    if (ownerEmail === undefined) throw new UsageError('--owner-email EMAIL is missing.');
    const founding: Founding = {
      ownerEmail,
      ownerPassword: values['owner-password-stdin'] ? await readPassword(terminal) : undefined,
      organisation: values.organisation,
      workspace: values.workspace,
      project: values.project,
    };
    checkFlags(founding);
    const founded = await initialise(values['data-dir'], founding);
    if (values.json) terminal.out(JSON.stringify(founded));
    else terminal.out(told(founded, founding.ownerPassword === undefined));
    return 0;
  },
};

async function initialise(dataDir: string | undefined, founding: Founding): Promise<Founded> {
  const data = await openData(readConfig({ dataDir }));
  try {
    const access = accessService({ store: accessStore(data.database), clock: systemClock, log: jsonLog() });
    return await access.initialise(founding);
  } finally {
    await data.close();
  }
}

/** The password is the input up to its last line end: `echo` and files add one that nobody means. */
async function readPassword(terminal: Terminal): Promise<string> {
  const password = (await terminal.input()).replace(/\r?\n$/, '');
  if (password === '') throw new UsageError('--owner-password-stdin: there is no password on standard input.');
  return password;
}

const flags: Readonly<Record<string, string>> = {
  ownerEmail: '--owner-email',
  ownerPassword: 'the password',
  organisation: '--organisation',
  workspace: '--workspace',
  project: '--project',
};

/** Bad answers are told by their flags, before anything is made on disk. */
function checkFlags(founding: Founding): void {
  try {
    checkFounding(founding);
  } catch (error) {
    if (!(error instanceof Fault) || !error.issues) throw error;
    const problems = error.issues.map(({ path: [field = ''], message }) => `${flags[field] ?? field}: ${message}.`);
    throw new UsageError(problems.join(' '));
  }
}

function told(founded: Founded, passwordWasMade: boolean): string {
  return `Slipway is set up.

  Organisation    ${founded.organisationId}
  Workspace       ${founded.workspaceId}
  Project         ${founded.projectId}
  Owner           ${founded.ownerEmail}
  Password        ${passwordWasMade ? founded.ownerPassword : 'the one that you gave'}

  Workspace key   ${founded.workspaceKey}
  Management key  ${founded.managementKey}
  Ingest key      ${founded.ingestKey}

${passwordWasMade ? 'The password and the keys are' : 'The keys are'} shown this once and cannot be read again: keep them now.
The workspace key is the bearer token of the management API (/api/v1), the management key
manages ingest keys, the ingest key sends telemetry of the project.`;
}
