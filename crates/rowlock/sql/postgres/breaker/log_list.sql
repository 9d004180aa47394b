-- Lists the last changes of a breaker's state, newest first.
-- Index: breaker_log_pkey.
select version, from_state, to_state, forced, changed_at, changed_by, reason
from rowlock.breaker_log
where name = $1
order by version desc
limit $2
