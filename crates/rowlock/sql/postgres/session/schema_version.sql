-- The newest migration that ran, and the oldest schema number a binary may speak here.
-- Index: migration_pkey.
select max(version) as version, max(oldest) as oldest from rowlock.migration
