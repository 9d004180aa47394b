-- Returns the state of one job, and how its last attempt ended.
-- Index: rowlock_job by id.
select id, state, last_outcome, last_error, result, false as compensates from rowlock_jobs where id = ?1
