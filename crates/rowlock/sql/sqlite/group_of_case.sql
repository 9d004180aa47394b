-- The group that a case's job is in, if any.
-- Index: rowlock_case_file by id, rowlock_job by id.
select j.group_no
from rowlock_case_file c left join rowlock_job j on j.id = c.id
where c.id = ?1
