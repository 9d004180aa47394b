-- Lists the next ledger entries of one hold that were made before the given time, oldest first, for the sweep.
-- Index: rowlock_ledger_made.
select key, made_at
from rowlock_ledger
where hold = ?1 and made_at < ?2 and (made_at, key) > (?3, ?4)
order by made_at, key limit +?5
