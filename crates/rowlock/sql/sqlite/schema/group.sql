-- One row per group that has a job. The head is the job that may run: it is in ready, in lease, or in a case that stops
-- the group. Every other job of the group is in waiting. Only a paused group has no head.
create table rowlock_job_group (
  no integer primary key,
  head integer,
  paused integer not null default 0
) strict;

create index rowlock_job_group_paused on rowlock_job_group (no) where paused = 1;
