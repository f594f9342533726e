-- What the installation remembers about itself. `master_key_check` is a sealed constant that tells a wrong master
-- key at start; `set_up_at` is written once, so that two set-ups at the same time cannot both succeed.
CREATE TABLE settings (
  name  TEXT PRIMARY KEY,
  value TEXT NOT NULL
) STRICT;
