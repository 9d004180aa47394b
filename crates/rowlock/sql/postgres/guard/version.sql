-- How often what this key protects has been changed.
-- Index: guard_version_pkey.
select version from rowlock.guard_version where key = $1
