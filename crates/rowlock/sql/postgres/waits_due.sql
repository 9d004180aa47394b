-- Whether the sweep of waiting jobs has anything to do: a limit has passed, or, if asked for, a name was completed by somebody who did not see the job.
-- Index: waiting_limit, waiting_name, completion_pkey.
with clock as materialized (
  select coalesce($1::timestamptz, clock_timestamp()) as now
)
select
  exists (select from rowlock.waiting w where w.limit_at <= (select now from clock))
  or ($2::boolean and exists (select from rowlock.waiting w join rowlock.completion c on c.name = w.name))
