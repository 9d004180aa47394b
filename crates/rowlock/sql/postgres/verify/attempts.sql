-- Checks that attempts are counted as the outcomes before them say, and never exceed the maximum.
-- Index: outcome_id, ready_id, waiting_pkey, lease_pkey, case_file_pkey, each from its newest job on; job_pkey,
-- audit_id.
with looked as materialized (
  (
    select id, epoch, 'ended' as place, attempt, outcome, worker, null::int as attempts_max
    from rowlock.outcome order by id desc, epoch desc limit $2
  )
  union all
  (select id, epoch, 'ready', attempt, null, null, attempts_max from rowlock.ready order by id desc limit $2)
  union all
  (select id, epoch, 'waiting', attempt, null, null, attempts_max from rowlock.waiting order by id desc limit $2)
  union all
  (select id, epoch, 'leased', attempt, null, worker, attempts_max from rowlock.lease order by id desc limit $2)
  union all
  (select id, epoch, 'case', attempt, null, null, attempts_max from rowlock.case_file order by id desc limit $2)
), paired as (
  select
    l.*, lag(epoch) over before as epoch_before, lag(attempt) over before as attempt_before, lag(outcome) over before as was
  from looked l where place = 'ended'
  window before as (partition by id order by epoch)
), counted as (
  select
    p.*, case
      when was in ('deferred', 'released') then attempt_before
      when was in ('retired', 'done', 'cancelled') then 1
      else attempt_before + 1
    end as due
  from paired p where worker <> 0 and epoch_before = epoch - 1
), broken as (
  select
    id as job, format('the attempt of epoch %s was number %s, but %s by the outcome before it', epoch, attempt, due) as what
  from counted c
  where attempt <> due
    and not (was = 'lost' and attempt = 1 and (select count(*) from rowlock.audit a where a.id = c.id and a.verb = 'reopen') > 0)
  union all
  select p.id, format('attempt %s of %s ended', p.attempt, j.attempts_max)
  from paired p cross join lateral (select x.attempts_max from rowlock.job x where x.id = p.id limit 1) j
  where p.worker <> 0 and (p.attempt < 1 or p.attempt > j.attempts_max)
  union all
  select id, format('is %s after %s attempts of %s', place, attempt, attempts_max)
  from looked
  where attempt < case place when 'leased' then 1 else 0 end
    or attempt > attempts_max - case when place in ('ready', 'waiting') then 1 else 0 end
)
select
  (select count(*) from looked) as looked,
  not exists (select from looked group by place having count(*) >= $2) as whole,
  (select count(*) from broken) as broken,
  (select json_agg(f)::text from (select job, what from broken order by job limit $1) f) as found
