-- Cancels a job that is not finished; returns the place it was in.
-- Index: ready_id, waiting_pkey, lease_pkey, job_pkey, inside rowlock.cancel.
select rowlock.cancel($1, $2, $3)
