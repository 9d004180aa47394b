-- Lists waiting jobs whose limit has passed, for the statements that end them.
-- Index: rowlock_waiting_limit, rowlock_completion by name, rowlock_job by id.
select w.id, w.epoch + 1 as epoch, w.limit_ends as outcome, w.name, coalesce(j.queue, '') as queue, coalesce(j.kind, '') as kind
from rowlock_waiting w left join rowlock_job j on j.id = w.id
where w.limit_at <= ?1 and not exists (select 1 from rowlock_completion c where c.name = w.name)
order by w.limit_at
limit +?2
