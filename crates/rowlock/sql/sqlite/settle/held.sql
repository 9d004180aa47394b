-- Which of these tokens still hold; one that does not come back has lost its lease.
-- Index: rowlock_lease by id. Before settle/attempts.sql, which ends them.
-- no twin: postgresql says so inside rowlock.end_leases.
select l.id, l.epoch, l.worker
from jsonb_each(?1) s
cross join rowlock_lease l on l.id = s.value ->> 'id' and l.epoch = s.value ->> 'epoch' and l.worker = s.value ->> 'worker'
