-- Ends the leases of settled jobs, by the whole token.
-- Index: rowlock_lease by id.
-- no twin: postgresql ends the lease inside settle/attempts.sql.
delete from rowlock_lease where (id, epoch, worker) in (
  select s.value ->> 'id', s.value ->> 'epoch', s.value ->> 'worker' from jsonb_each(?1) s
)
