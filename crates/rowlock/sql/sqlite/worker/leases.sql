-- Lists what a worker holds by the database's word, to find claims whose reply was lost.
-- Index: none; the table is small. No worker/lock.sql before it: the write lock is held, so no claim is in flight.
select id, epoch from rowlock_lease where worker = ?1
