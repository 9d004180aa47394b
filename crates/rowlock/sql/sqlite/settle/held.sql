-- Returns which of these tokens still hold; a token that is missing has lost its lease.
-- Index: rowlock_lease by id. Runs before settle/attempts.sql, which ends the leases.
-- only here: PostgreSQL says so inside rowlock.end_leases.
select l.id, l.epoch, l.worker
from jsonb_each(?1) s
cross join rowlock_lease l on l.id = s.value ->> 'id' and l.epoch = s.value ->> 'epoch' and l.worker = s.value ->> 'worker'
