-- Locks what guards protect until the transaction ends, in the order given; at a level whose re-read would be stale it locks nothing.
-- Index: none; advisory locks by number. What is protected is read by a later statement: this one's snapshot is older than its locks.
select current_setting('transaction_isolation') as level,
  case when current_setting('transaction_isolation') in ('read committed', 'read uncommitted')
    then pg_advisory_xact_lock(no)::text end as locked
from unnest($1::bigint[]) as no
