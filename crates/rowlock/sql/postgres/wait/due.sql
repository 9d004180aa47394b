-- Says whether the sweeps have anything to do.
-- Index: waiting_limit, waiting_name, completion_pkey; job_group_vacant, job_group_paused, ready_id; case_file_error.
-- It is one statement because idle workers run it all the time.
-- They do if a limit has passed, or, if asked for, a name was completed by a transaction that did not see the job. They
-- also do if a group is vacant, or paused with its head in ready, or if the error of a case has no name.
with clock as materialized (
  select coalesce($1::timestamptz, clock_timestamp()) as now
)
select
  exists (select from rowlock.waiting w where w.limit_at <= (select now from clock))
  or ($2::boolean and exists (select from rowlock.waiting w join rowlock.completion c on c.name = w.name)) as waits,
  exists (select from rowlock.job_group where vacant and not paused)
  or exists (select from rowlock.job_group g join rowlock.ready r on r.id = g.head where g.paused) as groups,
  exists (select from rowlock.case_file where error_no is null) as cases
