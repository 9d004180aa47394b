-- Renews all leases of a worker with one row, and clears a suspicion; no row if the worker was declared dead.
-- Index: rowlock_worker by id.
update rowlock_worker
set beat = ?2, suspect_at = null
where id = ?1 and dead = 0
returning id
