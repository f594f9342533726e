-- Where in a request a secret's placeholder is replaced: JSON list.
ALTER TABLE secrets ADD COLUMN surfaces TEXT NOT NULL DEFAULT '["headers","query"]';

-- Which hosts the runs of a workspace may reach, as JSON; a workspace without a row allows every public host.
CREATE TABLE workspace_egress (
  workspace_id TEXT PRIMARY KEY REFERENCES workspaces (id),
  policy       TEXT NOT NULL
) STRICT;
