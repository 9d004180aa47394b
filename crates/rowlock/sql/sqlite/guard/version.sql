-- Returns how often the thing that this key protects has been changed.
-- Index: rowlock_guard_version by key.
select version from rowlock_guard_version where key = ?1
