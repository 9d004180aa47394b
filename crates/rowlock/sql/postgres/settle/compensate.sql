-- Enqueues the compensations of jobs that were just retired, in the commit that retired them, as the next link of their chain; once per job, and not while a parked effect of it is in doubt.
-- Index: job_pkey, case_file_pkey, effect_id_name_key, outcome_id, job_chain; writes ready_order, ready_id. All inside rowlock.compensate.
select id, queue from rowlock.compensate($1::bigint[], $2::timestamptz)
