-- Records one change of a breaker's state.
-- Index: writes rowlock_breaker_log by name and version, rowlock_breaker_log_changed.
insert into rowlock_breaker_log (name, version, from_state, to_state, forced, changed_at, changed_by, reason)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
