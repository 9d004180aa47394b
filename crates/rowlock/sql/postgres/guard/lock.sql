-- Takes the locks of guards until the transaction ends, in the given order.
-- Index: none; advisory locks by number. A later statement must read the protected rows, because this statement's
-- snapshot is older than its locks.
-- At an isolation level where a later read would be stale, it locks nothing.
select current_setting('transaction_isolation') as level,
  case when current_setting('transaction_isolation') in ('read committed', 'read uncommitted')
    then pg_advisory_xact_lock(no)::text end as locked
from unnest($1::bigint[]) as no
