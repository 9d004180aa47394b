-- Returns the state of one job, and how its last attempt ended.
-- Index: job_pkey.
select id, state, last_outcome, last_error, result::text as result, false as compensates from rowlock.jobs where id = $1
