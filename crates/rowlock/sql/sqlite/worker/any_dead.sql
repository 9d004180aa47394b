-- Whether a worker is marked dead, so that recovery has something to do, and when the next who is suspected may be.
-- Index: none; one row per process.
-- no twin: postgresql asks in worker/mark_dead.sql, and suspects nobody.
select
    exists (select 1 from rowlock_worker where dead),
    (select min(suspect_at + lease_ms * 1000 / 3) from rowlock_worker where dead = 0)
