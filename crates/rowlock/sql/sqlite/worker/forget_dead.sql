-- Removes dead workers that hold nothing.
-- Index: none; one row per process. It needs no worker/lock_dead.sql before it, because the write lock is held.
delete from rowlock_worker where dead = 1 and id not in (select worker from rowlock_lease)
