-- Whether a worker is marked dead, so that recovery has something to do.
-- Index: none; one row per process.
select exists (select from rowlock.worker where dead)
