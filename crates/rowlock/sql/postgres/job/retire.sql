-- Retires a job that is not finished, for an operator; returns the place it was in.
-- Index: ready_id, waiting_pkey, lease_pkey, job_pkey, outcome_id, inside rowlock.retire.
select rowlock.retire($1, $2, $3)
