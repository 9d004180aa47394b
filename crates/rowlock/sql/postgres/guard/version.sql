-- Returns how often the thing that this key protects has been changed.
-- Index: guard_version_pkey.
select version from rowlock.guard_version where key = $1
