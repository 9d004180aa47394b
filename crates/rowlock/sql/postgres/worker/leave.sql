-- Marks a worker that stopped gracefully as dead, so that recovery ends its remaining leases immediately.
-- Index: worker_pkey.
update rowlock.worker set dead = true where id = $1 and not dead
