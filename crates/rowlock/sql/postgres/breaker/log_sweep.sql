-- Removes changes of breakers that are older than this, a bounded number at a time.
-- Index: breaker_log_changed.
delete from rowlock.breaker_log where ctid = any (array(
  select ctid from rowlock.breaker_log where changed_at < $1 order by changed_at limit $2
))
