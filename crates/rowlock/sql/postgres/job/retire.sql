-- Retires a job that is not finished, by hand; says where it stood.
-- Index: ready_id, waiting_pkey, lease_pkey, job_pkey, outcome_id, inside rowlock.retire.
select rowlock.retire($1, $2, $3)
