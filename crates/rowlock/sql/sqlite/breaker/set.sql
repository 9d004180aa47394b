-- Changes the state of a breaker, only from the version that was read; no row if another caller changed it.
-- Index: rowlock_breaker by name.
update rowlock_breaker
set state = ?3, forced = ?4, failures = ?5, trips = ?6, open_until = ?7, version = ?8, changed_at = ?9, changed_by = ?10, reason = ?11
where name = ?1 and version = ?2
