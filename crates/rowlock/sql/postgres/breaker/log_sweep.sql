-- Removes breaker changes that are older than the given time, a bounded number per call.
-- Index: breaker_log_changed.
delete from rowlock.breaker_log where ctid = any (array(
  select ctid from rowlock.breaker_log where changed_at < $1 order by changed_at limit $2
))
