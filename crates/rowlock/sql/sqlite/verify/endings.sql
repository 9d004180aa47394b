-- Checks that nothing follows the end of a job, except after a reopened retirement or a re-run.
-- Index: rowlock_outcome_id, from the newest job on; rowlock_job by id, rowlock_audit_id.
with looked as materialized (
  select id, epoch, attempt, outcome from rowlock_outcome order by id desc, epoch desc limit +?2
), followed as materialized (
  select l.*, lead(epoch) over (partition by id order by epoch) as next from looked l
), gone_on as (
  select f.id, count(*) as times, (
    select count(*) from rowlock_audit a where a.id = f.id and a.verb in ('reopen', 'close')
  ) as reopened
  from followed f left join rowlock_job j on j.id = f.id
  where f.next > f.epoch and (f.outcome = 'retired' or (f.outcome = 'lost' and f.attempt >= j.attempts_max))
  group by f.id
), gone_on_after as (
  select f.*, count(*) over (partition by id) as times
  from followed f where f.outcome in ('done', 'cancelled') and f.next > f.epoch
), broken as materialized (
  select id as job, format('is %s since epoch %d, and has an outcome of epoch %d', outcome, epoch, next) as what
  from gone_on_after f
  where times > (select count(*) from rowlock_audit a where a.id = f.id and a.verb = 'rerun')
  union all
  select id, format('was retired %d times and went on, but was reopened %d times', times, reopened)
  from gone_on where times > reopened
)
select
  (select count(*) from looked) as looked, (select count(*) < ?2 from looked) as whole, (select count(*) from broken) as broken,
  (select json_group_array(json_object('job', job, 'what', what)) from (select job, what from broken order by job limit +?1)) as found
