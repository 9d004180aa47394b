-- Puts a case back with all its attempts, to where it may run or must wait, and notes who did it; the queue to wake.
-- Index: case_file_pkey, job_pkey, completion_pkey, job_group_pkey, inside rowlock.reopen; writes ready_order, ready_id, waiting_pkey.
select j.queue
from (select rowlock.reopen($1, $2) as place) done left join rowlock.job j on j.id = $1
