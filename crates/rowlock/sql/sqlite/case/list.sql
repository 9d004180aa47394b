-- Lists open cases, newest first, or one case by its id.
-- Index: rowlock_case_file by id, rowlock_job by id.
select
  c.id, coalesce(j.kind, '') as kind, coalesce(j.queue, '') as queue, c.reason, c.attempt, c.attempts_max, c.retired_at,
  c.history, c.error_no, c.owner, c.note
from rowlock_case_file c left join rowlock_job j on j.id = c.id
where ?1 is null or c.id = ?1
order by c.retired_at desc, c.id desc limit +?2
