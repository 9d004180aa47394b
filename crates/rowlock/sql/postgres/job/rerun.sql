-- Runs a finished job once more, under a new epoch; returns how it ended before.
-- Index: job_pkey, ready_id, waiting_pkey, lease_pkey, case_file_pkey, outcome_id, job_group_pkey, inside
-- rowlock.rerun.
select rowlock.rerun($1, $2, $3)
