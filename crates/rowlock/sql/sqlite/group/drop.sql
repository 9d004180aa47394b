-- Removes those of these groups that have no job.
-- Index: rowlock_job_group by no.
delete from rowlock_job_group
where no in (select u.value ->> 'no' from json_each(?1) u) and head is null and paused = 0
