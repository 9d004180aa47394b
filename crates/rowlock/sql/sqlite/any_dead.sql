-- Whether a worker is marked dead, so that recovery has something to do.
-- Index: none; one row per process.
-- no twin: postgresql asks in mark_dead.sql.
select exists (select 1 from rowlock_worker where dead)
