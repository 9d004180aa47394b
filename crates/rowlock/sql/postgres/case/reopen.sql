-- Reopens a case with all its attempts, to ready or waiting, and records who did it; returns the queue to notify.
-- Index: case_file_pkey, job_pkey, completion_pkey, job_group_pkey, inside rowlock.reopen; writes ready_order,
-- ready_id, waiting_pkey.
select j.queue
from (select rowlock.reopen($1, $2) as place) done left join rowlock.job j on j.id = $1
