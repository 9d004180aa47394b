-- Returns the answer that a job waited for; no row if it waits for nothing, or the name is not completed.
-- Index: rowlock_job by id, rowlock_completion by name.
select c.answer
from rowlock_job j join rowlock_completion c on c.name = j.waits_for
where j.id = ?1
