-- The group that a case's job is in, if any.
-- Index: case_file_pkey, job_pkey.
select j.group_no
from rowlock.case_file c left join rowlock.job j on j.id = c.id
where c.id = $1
