-- Checks that every lease has its worker's row; without that row, the lease would never be ended.
-- Index: lease_pkey, from the newest job on; worker_pkey.
with looked as materialized (
  select id, worker from rowlock.lease order by id desc limit $2
), broken as (
  select l.id as job, format('is leased to worker %s, which is not registered', l.worker) as what
  from looked l where (select count(*) from rowlock.worker w where w.id = l.worker) = 0
)
select
  (select count(*) from looked) as looked, (select count(*) < $2 from looked) as whole, (select count(*) from broken) as broken,
  (select json_agg(f)::text from (select job, what from broken order by job limit $1) f) as found
