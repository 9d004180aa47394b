-- Checks that leases of silent workers are ended in time: twice the lease plus one minute is enough to recover.
-- Index: lease_pkey, from the newest job on; worker_pkey.
with clock as materialized (
  select coalesce($3::timestamptz, clock_timestamp()) as now
), looked as materialized (
  select id, worker from rowlock.lease order by id desc limit $2
), broken as (
  select
    l.id as job,
    format('is leased to worker %s, silent for %s s', l.worker, extract(epoch from c.now - w.beat)::bigint) as what
  from looked l
  cross join clock c
  cross join lateral (select x.beat, x.lease_ms from rowlock.worker x where x.id = l.worker limit 1) w
  where w.beat < c.now - w.lease_ms * interval '2 milliseconds' - interval '1 minute'
)
select
  (select count(*) from looked) as looked, (select count(*) < $2 from looked) as whole, (select count(*) from broken) as broken,
  (select json_agg(f)::text from (select job, what from broken order by job limit $1) f) as found
