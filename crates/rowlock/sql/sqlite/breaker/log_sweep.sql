-- Removes breaker changes that are older than the given time, a bounded number per call.
-- Index: rowlock_breaker_log_changed.
delete from rowlock_breaker_log where rowid in (
  select rowid from rowlock_breaker_log where changed_at < ?1 order by changed_at limit +?2
)
