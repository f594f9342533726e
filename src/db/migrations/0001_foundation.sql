CREATE TABLE organisations (
  id         TEXT PRIMARY KEY,
  name       TEXT NOT NULL,
  created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE workspaces (
  id              TEXT PRIMARY KEY,
  organisation_id TEXT NOT NULL REFERENCES organisations (id),
  name            TEXT NOT NULL,
  slug            TEXT NOT NULL UNIQUE,
  created_at      INTEGER NOT NULL
) STRICT;

CREATE TABLE projects (
  id           TEXT PRIMARY KEY,
  workspace_id TEXT NOT NULL REFERENCES workspaces (id),
  name         TEXT NOT NULL,
  slug         TEXT NOT NULL,
  created_at   INTEGER NOT NULL,
  UNIQUE (workspace_id, slug)
) STRICT;

CREATE TABLE users (
  id            TEXT PRIMARY KEY,
  email         TEXT NOT NULL UNIQUE,
  name          TEXT NOT NULL,
  password_hash TEXT NOT NULL,
  created_at    INTEGER NOT NULL
) STRICT;

CREATE TABLE members (
  id           TEXT PRIMARY KEY,
  workspace_id TEXT NOT NULL REFERENCES workspaces (id),
  user_id      TEXT NOT NULL REFERENCES users (id),
  role         TEXT NOT NULL CHECK (role IN ('owner', 'admin', 'member')),
  joined_at    INTEGER NOT NULL,
  UNIQUE (workspace_id, user_id)
) STRICT;

-- One table for the tokens of all kinds: which of the scope columns are set follows from the kind.
CREATE TABLE tokens (
  id              TEXT PRIMARY KEY,
  kind            TEXT NOT NULL CHECK (kind IN ('workspace', 'management', 'ingest', 'pat')),
  token_hash      TEXT NOT NULL UNIQUE,
  shown_prefix    TEXT NOT NULL,
  name            TEXT NOT NULL,
  organisation_id TEXT NOT NULL REFERENCES organisations (id),
  workspace_id    TEXT REFERENCES workspaces (id),
  project_id      TEXT REFERENCES projects (id),
  member_id       TEXT REFERENCES members (id),
  created_at      INTEGER NOT NULL,
  last_used_at    INTEGER,
  revoked_at      INTEGER
) STRICT;

CREATE TABLE secrets (
  id            TEXT PRIMARY KEY,
  workspace_id  TEXT NOT NULL REFERENCES workspaces (id),
  name          TEXT NOT NULL,
  placeholder   TEXT NOT NULL,
  sealed_value  TEXT NOT NULL,
  allowed_hosts TEXT NOT NULL,
  created_at    INTEGER NOT NULL,
  UNIQUE (workspace_id, name)
) STRICT;

CREATE TABLE integrations (
  id           TEXT PRIMARY KEY,
  workspace_id TEXT NOT NULL REFERENCES workspaces (id),
  provider     TEXT NOT NULL,
  display_name TEXT NOT NULL,
  placeholder  TEXT,
  sealed_token TEXT,
  created_at   INTEGER NOT NULL
) STRICT;

CREATE TABLE repositories (
  id             TEXT PRIMARY KEY,
  workspace_id   TEXT NOT NULL REFERENCES workspaces (id),
  integration_id TEXT NOT NULL REFERENCES integrations (id) ON DELETE CASCADE,
  full_name      TEXT NOT NULL,
  clone_url      TEXT NOT NULL,
  default_branch TEXT NOT NULL,
  private        INTEGER NOT NULL CHECK (private IN (0, 1)),
  created_at     INTEGER NOT NULL,
  UNIQUE (integration_id, clone_url)
) STRICT;

CREATE TABLE automations (
  id            TEXT PRIMARY KEY,
  workspace_id  TEXT NOT NULL REFERENCES workspaces (id),
  name          TEXT NOT NULL,
  description   TEXT NOT NULL,
  enabled       INTEGER NOT NULL CHECK (enabled IN (0, 1)),
  version       INTEGER NOT NULL CHECK (version >= 1),
  run_count     INTEGER NOT NULL DEFAULT 0,
  created_at    INTEGER NOT NULL,
  updated_at    INTEGER NOT NULL,
  UNIQUE (workspace_id, name)
) STRICT;

CREATE TABLE automation_versions (
  automation_id TEXT NOT NULL REFERENCES automations (id),
  version       INTEGER NOT NULL,
  configuration TEXT NOT NULL,
  created_by    TEXT NOT NULL,
  created_at    INTEGER NOT NULL,
  PRIMARY KEY (automation_id, version)
) STRICT;

-- A run's lease: `lease_token` counts up with each claim and fences every later write of an older holder.
CREATE TABLE runs (
  id                   TEXT PRIMARY KEY,
  workspace_id         TEXT NOT NULL REFERENCES workspaces (id),
  automation_id        TEXT NOT NULL REFERENCES automations (id),
  automation_version   INTEGER NOT NULL,
  number               INTEGER NOT NULL,
  status               TEXT NOT NULL CHECK (status IN ('pending', 'running', 'succeeded', 'failed', 'cancelled')),
  phase                TEXT CHECK (phase IN ('queued', 'preparing', 'checking_out', 'agent', 'finishing')),
  turn                 INTEGER NOT NULL,
  prompt               TEXT,
  trigger_provider     TEXT NOT NULL,
  trigger_source_url   TEXT,
  trigger_title        TEXT NOT NULL,
  trigger_attributes   TEXT NOT NULL,
  attempts             INTEGER NOT NULL DEFAULT 0,
  queued_at            INTEGER NOT NULL,
  lease_owner          TEXT,
  lease_token          INTEGER NOT NULL DEFAULT 0,
  lease_until          INTEGER,
  lines_seen           INTEGER NOT NULL DEFAULT 0,
  turn_started_at      INTEGER,
  -- Why the runner stopped the agent itself, written before it did: cancel and limits outlive a crash.
  stop_reason          TEXT CHECK (stop_reason IN ('runtime_limit', 'model_requests', 'output_flood')),
  session_id           TEXT,
  -- JSON list of what was checked out: the base of the diff.
  checkouts            TEXT,
  last_event_id        INTEGER NOT NULL DEFAULT 0,
  created_at           INTEGER NOT NULL,
  started_at           INTEGER,
  completed_at         INTEGER,
  cancel_requested_at  INTEGER,
  result_summary       TEXT,
  failure_category     TEXT,
  failure_message      TEXT,
  workspace_expires_at INTEGER,
  UNIQUE (automation_id, number)
) STRICT;
CREATE INDEX runs_by_status ON runs (status, queued_at);
CREATE INDEX runs_by_workspace_expiry ON runs (workspace_expires_at);

CREATE TABLE run_events (
  run_id     TEXT NOT NULL REFERENCES runs (id),
  id         INTEGER NOT NULL,
  turn       INTEGER NOT NULL,
  type       TEXT NOT NULL,
  data       TEXT,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (run_id, id)
) STRICT;

CREATE TABLE egress_requests (
  id            TEXT PRIMARY KEY,
  run_id        TEXT NOT NULL REFERENCES runs (id),
  turn          INTEGER NOT NULL,
  at            INTEGER NOT NULL,
  host          TEXT NOT NULL,
  port          INTEGER NOT NULL,
  method        TEXT,
  path          TEXT,
  status        INTEGER,
  bytes_up      INTEGER NOT NULL,
  bytes_down    INTEGER NOT NULL,
  duration_ms   INTEGER NOT NULL,
  secrets       TEXT NOT NULL,
  decision      TEXT NOT NULL CHECK (decision IN ('allowed', 'denied')),
  reason        TEXT
) STRICT;
CREATE INDEX egress_requests_by_run ON egress_requests (run_id, at);

-- A row is inserted before the request leaves, so that no crash can hide one from the count.
CREATE TABLE model_requests (
  id                 TEXT PRIMARY KEY,
  run_id             TEXT NOT NULL REFERENCES runs (id),
  turn               INTEGER NOT NULL,
  at                 INTEGER NOT NULL,
  provider           TEXT NOT NULL,
  model              TEXT NOT NULL,
  reached_provider   INTEGER NOT NULL CHECK (reached_provider IN (0, 1)),
  upstream_status    INTEGER,
  failure            TEXT,
  input_tokens       INTEGER NOT NULL DEFAULT 0,
  cached_tokens      INTEGER NOT NULL DEFAULT 0,
  cache_write_tokens INTEGER NOT NULL DEFAULT 0,
  output_tokens      INTEGER NOT NULL DEFAULT 0,
  cost_micros        INTEGER,
  duration_ms        INTEGER
) STRICT;
CREATE INDEX model_requests_by_run ON model_requests (run_id, at);
