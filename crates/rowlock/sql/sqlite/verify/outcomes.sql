-- Checks that every ended attempt has exactly one outcome, and that the outcome is a known one.
-- Index: rowlock_outcome_id, from the newest job on.
with looked as materialized (
  select id, epoch, outcome from rowlock_outcome order by id desc, epoch desc limit +?2
), paired as (
  select id, epoch, outcome, lag(epoch) over (partition by id order by epoch) as before from looked
), broken as materialized (
  select
    id as job,
    case
      when before = epoch then format('the attempt of epoch %d has two outcomes', epoch)
      when before < epoch - 1 then format('no outcome between those of epoch %d and %d', before, epoch)
      else format('the attempt of epoch %d has an outcome that nobody knows: %s', epoch, outcome)
    end as what
  from paired
  where before = epoch or before < epoch - 1
    or outcome not in ('done', 'retried', 'deferred', 'released', 'retired', 'cancelled', 'lost')
)
select
  (select count(*) from looked) as looked, (select count(*) < ?2 from looked) as whole, (select count(*) from broken) as broken,
  (select json_group_array(json_object('job', job, 'what', what)) from (select job, what from broken order by job limit +?1)) as found
