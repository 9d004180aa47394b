-- Checks that every lease has its worker's row; without that row, the lease would never be ended.
-- Index: rowlock_lease by id, from the newest job on; rowlock_worker by id.
with looked as materialized (
  select id, worker from rowlock_lease order by id desc limit +?2
), broken as materialized (
  select l.id as job, format('is leased to worker %d, which is not registered', l.worker) as what
  from looked l where not exists (select 1 from rowlock_worker w where w.id = l.worker)
)
select
  (select count(*) from looked) as looked, (select count(*) < ?2 from looked) as whole, (select count(*) from broken) as broken,
  (select json_group_array(json_object('job', job, 'what', what)) from (select job, what from broken order by job limit +?1)) as found
