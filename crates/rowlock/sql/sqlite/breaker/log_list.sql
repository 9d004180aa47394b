-- Lists the last changes of a breaker's state, newest first.
-- Index: rowlock_breaker_log by name and version.
select version, from_state, to_state, forced, changed_at, changed_by, reason
from rowlock_breaker_log
where name = ?1
order by version desc
limit +?2
