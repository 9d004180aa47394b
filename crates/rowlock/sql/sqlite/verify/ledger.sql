-- Checks that a ledger entry has an end if it is held for a period, and only then.
-- Index: rowlock_ledger_made, from the newest of each hold on.
with looked as materialized (
  select * from (
    select key, hold, expires_at from rowlock_ledger where hold = 'policy' order by made_at desc limit +?2
  )
  union all
  select * from (
    select key, hold, expires_at from rowlock_ledger where hold = 'period' order by made_at desc limit +?2
  )
  union all
  select * from (
    select key, hold, expires_at from rowlock_ledger where hold = 'ever' order by made_at desc limit +?2
  )
), broken as materialized (
  select null as job, format('entry "%s" is held by %s, and its end says otherwise', key, hold) as what
  from looked where (hold = 'period') <> (expires_at is not null)
)
select
  (select count(*) from looked) as looked,
  not exists (select 1 from looked group by hold having count(*) >= ?2) as whole,
  (select count(*) from broken) as broken,
  (select json_group_array(json_object('job', job, 'what', what)) from (select job, what from broken order by job limit +?1)) as found
