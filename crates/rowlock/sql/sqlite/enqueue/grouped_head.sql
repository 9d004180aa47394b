-- Makes the first of a group's jobs just inserted the head of the group, for each group that is free.
-- Index: rowlock_job_group by no. Runs after enqueue/jobs.sql, so the newest ids belong to these jobs.
-- only here: PostgreSQL does this first, in group/take.sql.
insert into rowlock_job_group (no, head)
select
  d.value ->> 'group_no',
  min((select seq from sqlite_sequence where name = 'rowlock_job') - json_array_length(?1) + 1 + d.key)
from jsonb_each(?1) d
group by 1
on conflict (no) do nothing
