import { Database } from 'bun:sqlite';

/**
 * What the API's read is measured against: `Bun.serve` with its own router and bun:sqlite called directly, which looks
 * the key up, then the row, and answers the same bytes. Arguments: database file, port to print itself.
 */
const [file = '', automationId = ''] = process.argv.slice(2);
const database = new Database(file, { readonly: true });
const key = database.query<{ workspace_id: string }, [string]>(
  'SELECT workspace_id FROM tokens WHERE token_hash = ? AND revoked_at IS NULL',
);
const row = database.query<{ id: string; name: string; configuration: string }, [string, string]>(
  `SELECT a.id, a.name, a.description, a.enabled, a.version, a.created_at, a.updated_at,
     (SELECT v.configuration FROM automation_versions v WHERE v.automation_id = a.id AND v.version = a.version)
       AS configuration
   FROM automations a WHERE a.id = ? AND a.workspace_id = ?`,
);
const server = Bun.serve({
  hostname: '127.0.0.1',
  port: 0,
  routes: {
    '/api/v1/automations/:automationId': (request) => {
      const bearer = request.headers.get('authorization')?.slice('Bearer '.length) ?? '';
      const holder = key.get(new Bun.SHA256().update(bearer).digest('hex'));
      if (!holder) return new Response('Unauthorized', { status: 401 });
      const found = row.get(request.params.automationId, holder.workspace_id);
      if (!found) return new Response('Not found', { status: 404 });
      return Response.json({ automation: { ...found, configuration: JSON.parse(found.configuration) } });
    },
  },
});
console.log(JSON.stringify({ port: server.port, automationId }));
