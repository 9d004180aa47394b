-- Lists the leases that a worker holds in the database, to find claims whose reply was lost.
-- Index: none; the table is small. The write lock is held, so no claim is in flight and no worker/lock.sql is needed.
select id, epoch from rowlock_lease where worker = ?1
