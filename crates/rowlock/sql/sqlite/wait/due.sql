-- Says whether the sweeps have anything to do.
-- Index: rowlock_waiting_limit, rowlock_job_group_paused, rowlock_ready by id, rowlock_case_file_error.
-- They do if a limit has passed, a paused group has its head in ready, or the error of a case has no name.
select
  exists (select 1 from rowlock_waiting where limit_at <= ?1) as waits,
  exists (
    select 1 from rowlock_job_group g indexed by rowlock_job_group_paused cross join rowlock_ready r on r.id = g.head
    where g.paused = 1
  ) as groups,
  exists (select 1 from rowlock_case_file where error_no is null) as cases
