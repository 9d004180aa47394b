-- Waits for any claim of this worker that is in flight; a claim locks its worker's row for key share.
-- Index: worker_pkey.
-- only here: SQLite has one writer, so no claim can be in flight at the same time.
select id from rowlock.worker where id = $1 for update
