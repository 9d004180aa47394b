-- Says whether a worker is marked dead, so that recovery has work, and when the next suspect may be marked.
-- Index: none; one row per process.
-- only here: PostgreSQL does it in worker/mark_dead.sql, and has no suspected workers.
select
    exists (select 1 from rowlock_worker where dead),
    (select min(suspect_at + lease_ms * 1000 / 3) from rowlock_worker where dead = 0)
