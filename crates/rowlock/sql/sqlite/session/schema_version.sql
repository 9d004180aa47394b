-- The newest migration that ran, and the oldest schema number a binary may speak here.
-- Index: rowlock_migration by version.
select max(version) as version, max(oldest) as oldest from rowlock_migration
