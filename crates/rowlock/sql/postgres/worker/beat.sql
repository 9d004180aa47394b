-- Renews all leases of a worker with one row; returns no row if the worker was declared dead.
-- Index: worker_pkey.
update rowlock.worker set beat = coalesce($2::timestamptz, clock_timestamp()) where id = $1 and not dead returning id
