-- Deletes the leases of finished jobs, by the whole token.
-- Index: rowlock_lease by id.
-- only here: PostgreSQL does so inside rowlock.end_leases.
delete from rowlock_lease where (id, epoch, worker) in (
  select s.value ->> 'id', s.value ->> 'epoch', s.value ->> 'worker' from jsonb_each(?1) s
)
