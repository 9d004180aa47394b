-- One row per group that has a job: the job whose turn it is, which stands in ready, in lease, or in a case that stops the
-- group; every other job of it is in waiting. Vacant until the sweep has filled or removed it.
create table rowlock.job_group (
  no bigint primary key,
  head bigint,
  paused boolean not null default false,
  vacant boolean not null generated always as (head is null) stored
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);

-- What the sweep looks for.
-- By a column of its own, so that a turn that is passed on changes nothing in any index.
create index job_group_vacant on rowlock.job_group (no) where vacant and not paused;

create index job_group_paused on rowlock.job_group (no) where paused;
