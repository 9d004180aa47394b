-- Waits for any claim of this worker still in flight; a claim holds its worker row for key share.
-- Index: worker_pkey.
-- no twin: sqlite has one writer, so no claim can be in flight beside the question.
select id from rowlock.worker where id = $1 for update
