-- Lists the open cases of one error, newest first.
-- Index: rowlock_case_file_error, rowlock_job by id.
select
  c.id, coalesce(j.kind, '') as kind, coalesce(j.queue, '') as queue, c.reason, c.attempt, c.attempts_max, c.retired_at,
  c.history, c.error_no, c.owner, c.note
from rowlock_case_file c left join rowlock_job j on j.id = c.id
where c.error_no = ?1
order by c.id desc limit +?2
