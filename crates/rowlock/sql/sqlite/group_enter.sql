-- Makes a job the head of a group that is free.
-- Index: rowlock_job_group by no.
-- no twin: postgresql uses group_take.sql.
insert into rowlock_job_group (no, head) values (?1, ?2)
on conflict (no) do nothing
