-- Checks that attempts are counted as the outcomes before them say, and never exceed the maximum.
-- Index: rowlock_outcome_id; rowlock_ready, rowlock_waiting, rowlock_lease and rowlock_case_file by id, each from its
-- newest job on; rowlock_job by id, rowlock_audit_id.
with looked as materialized (
  select * from (
    select id, epoch, 'ended' as place, attempt, outcome, worker, null as attempts_max
    from rowlock_outcome order by id desc, epoch desc limit +?2
  )
  union all
  select * from (
    select id, epoch, 'ready', attempt, null, null, attempts_max from rowlock_ready order by id desc limit +?2
  )
  union all
  select * from (
    select id, epoch, 'waiting', attempt, null, null, attempts_max from rowlock_waiting order by id desc limit +?2
  )
  union all
  select * from (
    select id, epoch, 'leased', attempt, null, worker, attempts_max from rowlock_lease order by id desc limit +?2
  )
  union all
  select * from (
    select id, epoch, 'case', attempt, null, null, attempts_max from rowlock_case_file order by id desc limit +?2
  )
), paired as materialized (
  select
    l.*, lag(epoch) over earlier as epoch_before, lag(attempt) over earlier as attempt_before, lag(outcome) over earlier as was
  from looked l where place = 'ended'
  window earlier as (partition by id order by epoch)
), counted as (
  select
    p.*, case
      when was in ('deferred', 'released') then attempt_before
      when was in ('retired', 'done', 'cancelled') then 1
      else attempt_before + 1
    end as due
  from paired p where worker <> 0 and epoch_before = epoch - 1
), broken as materialized (
  select
    id as job, format('the attempt of epoch %d was number %d, but %d by the outcome before it', epoch, attempt, due) as what
  from counted c
  where attempt <> due
    and not (was = 'lost' and attempt = 1 and exists (select 1 from rowlock_audit a where a.id = c.id and a.verb = 'reopen'))
  union all
  select p.id, format('attempt %d of %d ended', p.attempt, j.attempts_max)
  from paired p cross join rowlock_job j on j.id = p.id
  where p.worker <> 0 and (p.attempt < 1 or p.attempt > j.attempts_max)
  union all
  select id, format('is %s after %d attempts of %d', place, attempt, attempts_max)
  from looked
  where attempt < (place = 'leased') or attempt > attempts_max - (place in ('ready', 'waiting'))
)
select
  (select count(*) from looked) as looked,
  not exists (select 1 from looked group by place having count(*) >= ?2) as whole,
  (select count(*) from broken) as broken,
  (select json_group_array(json_object('job', job, 'what', what)) from (select job, what from broken order by job limit +?1)) as found
