-- Checks that nothing follows the end of a job, except after a reopened retirement or a re-run.
-- Index: outcome_id, from the newest job on; job_pkey, audit_id.
with looked as materialized (
  select id, epoch, attempt, outcome from rowlock.outcome order by id desc, epoch desc limit $2
), followed as (
  select l.*, lead(epoch) over (partition by id order by epoch) as next from looked l
), gone_on as (
  select f.id, count(*) as times, (
    select count(*) from rowlock.audit a where a.id = f.id and a.verb in ('reopen', 'close')
  ) as reopened
  from followed f
  where f.next > f.epoch and (
    f.outcome = 'retired'
    or (f.outcome = 'lost' and f.attempt >= (select max(j.attempts_max) from rowlock.job j where j.id = f.id))
  )
  group by f.id
), gone_on_after as (
  select f.*, count(*) over (partition by id) as times
  from followed f where f.outcome in ('done', 'cancelled') and f.next > f.epoch
), broken as (
  select id as job, format('is %s since epoch %s, and has an outcome of epoch %s', outcome, epoch, next) as what
  from gone_on_after f
  where times > (select count(*) from rowlock.audit a where a.id = f.id and a.verb = 'rerun')
  union all
  select id, format('was retired %s times and went on, but was reopened %s times', times, reopened)
  from gone_on where times > reopened
)
select
  (select count(*) from looked) as looked, (select count(*) < $2 from looked) as whole, (select count(*) from broken) as broken,
  (select json_agg(f)::text from (select job, what from broken order by job limit $1) f) as found
