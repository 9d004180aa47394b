-- The newest migration that ran, the oldest schema number a binary may speak here, and of which text base and functions are.
-- Index: none; a row per migration.
select
  max(version) as version, max(oldest) as oldest,
  max(hash) filter (where version = 1) as base,
  max(hash) filter (where version = 0) as functions,
  max(release) filter (where version = 0) as release
from rowlock_migration
