-- Lists the open cases of one error, newest first.
-- Index: case_file_error, job_pkey.
select
  c.id, coalesce(j.kind, '') as kind, coalesce(j.queue, '') as queue, c.reason, c.attempt, c.attempts_max, c.retired_at,
  c.history::text as history, c.error_no, c.owner, c.note
from rowlock.case_file c left join rowlock.job j on j.id = c.id
where c.error_no = $1
order by c.id desc limit $2
