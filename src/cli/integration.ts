import { type Config, readConfig } from '../config.ts';
import { proxyUrlOf, proxyUrls } from '../egress/upstream-proxy.ts';
import { gitProvider } from '../integrations/git.ts';
import type { IntegrationList } from '../integrations/schema.ts';
import { type IntegrationService, integrationService } from '../integrations/service.ts';
import { integrationStore } from '../integrations/store.ts';
import { plainHttpHosts } from '../integrations/url.ts';
import { systemClock } from '../kernel/clock.ts';
import { absent } from '../kernel/fault.ts';
import { readArguments } from './arguments.ts';
import { type Command, type Terminal, UsageError } from './command.ts';
import { openData } from './data.ts';

const usage = `slipway integration connect git --url URL [--name NAME] [--token-stdin] [--json]
slipway integration list [--json]
slipway integration remove ID

  --url URL              https:// address of a repository, or file:// for a path on this machine
  --name NAME            what the integration is called; otherwise the repository's name
  --token-stdin          read a token that may read the repository from standard input
  --workspace SLUG|ID    needed where there are several workspaces
  --data-dir DIR         where everything is kept (SLIPWAY_DATA_DIR; otherwise .slipway in your home directory)
  --json                 print one JSON object and nothing else`;

const everywhere = { 'data-dir': { type: 'string' }, workspace: { type: 'string' } } as const;
const json = { json: { type: 'boolean' } } as const;
const connectOptions = {
  ...everywhere,
  ...json,
  url: { type: 'string' },
  name: { type: 'string' },
  'token-stdin': { type: 'boolean' },
} as const;

type Action = (args: readonly string[], terminal: Terminal) => Promise<number>;

const actions: Readonly<Record<string, Action>> = { connect, list, remove };

export const command: Command = {
  name: 'integration',
  summary: 'Connect git repositories, list what is connected, remove a connection',
  usage,
  async run([word, ...args], terminal) {
    if (word === undefined || word.startsWith('-')) throw new UsageError('The action is missing.');
    const action = Object.hasOwn(actions, word) ? actions[word] : undefined;
    if (!action) throw new UsageError(`Unknown action "${word}".`);
    return action(args, terminal);
  },
};

async function connect(args: readonly string[], terminal: Terminal): Promise<number> {
  const { values, words } = readArguments(args, connectOptions, ['PROVIDER']);
  const [provider] = words;
  if (provider !== 'git') throw new UsageError(`Unknown provider "${provider}": git is the one that can be connected.`);
  const { url, name } = values;
  if (url === undefined) throw new UsageError('--url URL is missing.');
  const token = values['token-stdin'] ? await readToken(terminal) : undefined;
  const connected = await withService(values, (service, workspaceId) =>
    service.connectGit(workspaceId, {
      url,
      ...(name === undefined ? {} : { name }),
      ...(token === undefined ? {} : { token }),
    }),
  );
  if (values.json) terminal.out(JSON.stringify(connected));
  else terminal.out(described({ integrations: [connected.integration], repositories: connected.repositories }));
  return 0;
}

async function list(args: readonly string[], terminal: Terminal): Promise<number> {
  const { values } = readArguments(args, { ...everywhere, ...json });
  const found = await withService(values, (service, workspaceId) => service.list(workspaceId));
  if (values.json) terminal.out(JSON.stringify(found));
  else terminal.out(found.integrations.length === 0 ? 'Nothing is connected.' : described(found));
  return 0;
}

async function remove(args: readonly string[], terminal: Terminal): Promise<number> {
  const { values, words } = readArguments(args, { ...everywhere, ...json }, ['ID']);
  const [id = ''] = words;
  await withService(values, (service, workspaceId) => service.remove(workspaceId, id.toLowerCase()));
  terminal.out(values.json ? JSON.stringify({ removed: true }) : 'Removed.');
  return 0;
}

/** `echo` and files end a token with a line end that is not part of it. */
async function readToken(terminal: Terminal): Promise<string> {
  const token = (await terminal.input()).trim();
  if (token === '') throw new UsageError('--token-stdin: there is no token on standard input.');
  return token;
}

interface Where {
  readonly 'data-dir'?: string | undefined;
  readonly workspace?: string | undefined;
}

/** Works on the database itself, so it does not matter whether the server runs; one that does sees it at once. */
async function withService<T>(
  where: Where,
  work: (service: IntegrationService, workspaceId: string) => Promise<T>,
): Promise<T> {
  const config = readConfig({ dataDir: where['data-dir'] });
  const { database, vault, close } = await openData(config);
  try {
    const service = integrationService({
      store: integrationStore(database),
      vault,
      clock: systemClock,
      providers: { git: gitOf(config) },
    });
    return await work(service, await workspaceOf(service, where.workspace));
  } finally {
    await close();
  }
}

const gitOf = (config: Config) =>
  gitProvider({
    dataDir: config.dataDir,
    extraCa: config.egressExtraCa,
    proxyFor: (url) => proxyUrlOf(proxyUrls(config.upstreamProxy), url),
    allowsPlainHttp: plainHttpHosts(config.egressAllowPrivate),
  });

async function workspaceOf(service: IntegrationService, wanted: string | undefined): Promise<string> {
  const workspaces = await service.workspaces();
  if (workspaces.length === 0) throw absent('not_found', 'There is no workspace yet: run `slipway init` first.');
  if (wanted === undefined && workspaces.length > 1) {
    throw new UsageError(`Say which workspace with --workspace: ${workspaces.map(({ slug }) => slug).join(', ')}.`);
  }
  const found = workspaces.find(({ id, slug }) => wanted === undefined || slug === wanted || id === wanted);
  if (!found) throw new UsageError('--workspace names no workspace by its slug or id.');
  return found.id;
}

function described({ integrations, repositories }: Pick<IntegrationList, 'integrations' | 'repositories'>): string {
  const lines = integrations.flatMap((integration) => [
    `${integration.id}  ${integration.provider}  ${integration.displayName}`,
    ...repositories
      .filter(({ integrationAccountId }) => integrationAccountId === integration.id)
      .map(({ id, fullName, defaultBranch }) => `  repository ${id}  ${fullName}  ${defaultBranch}`),
  ]);
  return lines.join('\n');
}
