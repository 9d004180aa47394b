-- One row per group that has a job: the job whose turn it is, which stands in ready, in lease, or in a case that stops the
-- group; every other job of it is in waiting. Only a paused group has no head.
create table rowlock_job_group (
  no integer primary key,
  head integer,
  paused integer not null default 0
) strict;

create index rowlock_job_group_paused on rowlock_job_group (no) where paused = 1;
