-- Returns the newest migration, the oldest schema number a binary may use here, the hashes of base and functions.
-- Index: none; one row per migration.
select
  max(version) as version, max(oldest) as oldest,
  max(hash) filter (where version = 1) as base,
  max(hash) filter (where version = 0) as functions,
  max(release) filter (where version = 0) as release
from rowlock_migration
