-- Checks that a job that is in no place is done or cancelled.
-- Index: rowlock_job by id, from the newest job on; rowlock_ready, rowlock_lease, rowlock_waiting and rowlock_case_file
-- by id, rowlock_outcome_id.
-- A body is removed in the commit that removes its last outcome.
with looked as materialized (
  select id from rowlock_job order by id desc limit +?2
), nowhere as (
  select l.id
  from looked l
  where not exists (select 1 from rowlock_ready r where r.id = l.id)
    and not exists (select 1 from rowlock_lease x where x.id = l.id)
    and not exists (select 1 from rowlock_waiting w where w.id = l.id)
    and not exists (select 1 from rowlock_case_file c where c.id = l.id)
), broken as materialized (
  select
    n.id as job,
    case
      when o.id is null then 'stands nowhere, and no attempt of it ended'
      else format('stands nowhere, but its last attempt ended as %s', o.outcome)
    end as what
  from nowhere n
  left join rowlock_outcome o
    on o.id = n.id and o.epoch = (select max(x.epoch) from rowlock_outcome x where x.id = n.id)
  where o.id is null or o.outcome not in ('done', 'cancelled')
)
select
  (select count(*) from looked) as looked, (select count(*) < ?2 from looked) as whole, (select count(*) from broken) as broken,
  (select json_group_array(json_object('job', job, 'what', what)) from (select job, what from broken order by job limit +?1)) as found
