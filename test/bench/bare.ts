import { Database } from 'bun:sqlite';

/**
 * What the API's reads are measured against: `Bun.serve` with its own router and bun:sqlite called directly. It asks
 * the database the same questions in the same words and answers the same bytes; nothing else of the edge is there.
 * Arguments: database file. Prints its port.
 */
const [file = ''] = process.argv.slice(2);
const database = new Database(file, { readonly: true, strict: true });

interface Holder {
  tokenId: string;
  workspaceId: string;
  memberId: string;
  userId: string | null;
}
interface AutomationRow {
  id: string;
  name: string;
  description: string;
  enabled: 0 | 1;
  version: number;
  created_at: number;
  updated_at: number;
  configuration: string;
}
type WorkspaceRow = Record<'id' | 'name' | 'slug' | 'userId' | 'userName' | 'email' | 'role', string> & {
  createdAt: number;
};

const key = database.prepare<Holder, [string]>(
  `SELECT t.id AS "tokenId", t.workspace_id AS "workspaceId", t.last_used_at AS "lastUsedAt",
     t.member_id AS "memberId",
     (SELECT m.user_id FROM members m WHERE m.id = t.member_id AND m.workspace_id = t.workspace_id) AS "userId",
     (SELECT m.role FROM members m WHERE m.id = t.member_id AND m.workspace_id = t.workspace_id) AS "role"
   FROM tokens t WHERE t.token_hash = ? AND t.kind = 'workspace' AND t.revoked_at IS NULL`,
);
const automation = database.prepare<AutomationRow, [string, string]>(
  `SELECT a.id, a.name, a.description, a.enabled, a.version, a.created_at, a.updated_at,
     (SELECT v.configuration FROM automation_versions v WHERE v.automation_id = a.id AND v.version = a.version)
       AS configuration
   FROM automations a WHERE a.id = ? AND a.workspace_id = ?`,
);
const workspace = database.prepare<WorkspaceRow, [string, string]>(
  `SELECT m.workspace_id AS "id", m.user_id AS "userId", m.role AS "role",
     (SELECT w.name FROM workspaces w WHERE w.id = m.workspace_id) AS "name",
     (SELECT w.slug FROM workspaces w WHERE w.id = m.workspace_id) AS "slug",
     (SELECT w.created_at FROM workspaces w WHERE w.id = m.workspace_id) AS "createdAt",
     (SELECT u.name FROM users u WHERE u.id = m.user_id) AS "userName",
     (SELECT u.email FROM users u WHERE u.id = m.user_id) AS "email"
   FROM members m WHERE m.id = ? AND m.workspace_id = ?`,
);
const egress = database.prepare<{ policy: string }, [string]>(
  'SELECT policy FROM workspace_egress WHERE workspace_id = ?',
);

function holderOf(request: Request): Holder | undefined {
  const bearer = request.headers.get('authorization')?.slice('Bearer '.length) ?? '';
  const holder = key.get(Bun.SHA256.hash(bearer, 'hex'));
  return holder && holder.userId !== null ? holder : undefined;
}

const iso = (ms: number) => new Date(ms).toISOString();
const unauthorized = () => new Response('Unauthorized', { status: 401 });
const notFound = () => new Response('Not found', { status: 404 });

const server = Bun.serve({
  hostname: '127.0.0.1',
  port: 0,
  routes: {
    '/api/v1/automations/:automationId': (request) => {
      const holder = holderOf(request);
      if (!holder) return unauthorized();
      const row = automation.get(request.params.automationId, holder.workspaceId);
      if (!row) return notFound();
      return Response.json({
        automation: {
          id: row.id,
          name: row.name,
          description: row.description,
          enabled: row.enabled === 1,
          version: row.version,
          createdAt: iso(row.created_at),
          updatedAt: iso(row.updated_at),
          configuration: JSON.parse(row.configuration),
        },
      });
    },
    '/api/v1/workspace': (request) => {
      const holder = holderOf(request);
      if (!holder) return unauthorized();
      const row = workspace.get(holder.memberId, holder.workspaceId);
      const policy = egress.get(holder.workspaceId)?.policy;
      if (!row) return notFound();
      return Response.json({
        workspace: {
          id: row.id,
          name: row.name,
          slug: row.slug,
          createdAt: iso(row.createdAt),
          apiKeyId: holder.tokenId,
          capabilities: ['automations'],
          egress: policy === undefined ? { default: 'allow', hosts: [] } : JSON.parse(policy),
          member: { userId: row.userId, name: row.userName, email: row.email, role: row.role },
        },
      });
    },
  },
});
console.log(JSON.stringify({ port: server.port }));
