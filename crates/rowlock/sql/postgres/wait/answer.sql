-- Returns the answer that a job waited for; no row if it waits for nothing, or the name is not completed.
-- Index: job_pkey, completion_pkey.
select c.answer::text
from rowlock.job j join rowlock.completion c on c.name = j.waits_for
where j.id = $1
