-- Checks that leases of silent workers are ended in time: twice the lease plus one minute is enough to recover.
-- Index: rowlock_lease by id, from the newest job on; rowlock_worker by id.
with looked as materialized (
  select id, worker from rowlock_lease order by id desc limit +?2
), broken as materialized (
  select
    l.id as job, format('is leased to worker %d, silent for %d s', l.worker, (?3 - w.beat) / 1000000) as what
  from looked l cross join rowlock_worker w on w.id = l.worker
  where w.beat < ?3 - w.lease_ms * 2000 - 60 * 1000000
)
select
  (select count(*) from looked) as looked, (select count(*) < ?2 from looked) as whole, (select count(*) from broken) as broken,
  (select json_group_array(json_object('job', job, 'what', what)) from (select job, what from broken order by job limit +?1)) as found
