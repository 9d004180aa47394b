-- One row per group that has a job. The head is the job that may run: it is in ready, in lease, or in a case that stops
-- the group. Every other job of the group is in waiting. A vacant group has no head until the sweep fills or removes
-- it.
create table rowlock.job_group (
  no bigint primary key,
  head bigint,
  paused boolean not null default false,
  vacant boolean not null generated always as (head is null) stored
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);

-- The sweep looks for vacant groups.
-- The index is on a separate column, so that passing a turn on changes no index.
create index job_group_vacant on rowlock.job_group (no) where vacant and not paused;

create index job_group_paused on rowlock.job_group (no) where paused;
