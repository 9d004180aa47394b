-- Marks a worker that stopped gracefully as dead, so that recovery ends its remaining leases immediately.
-- Index: rowlock_worker by id.
update rowlock_worker set dead = 1 where id = ?1 and dead = 0
