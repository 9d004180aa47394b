-- Second half of forgetting: removes the locked dead workers that hold nothing; says how many still do.
-- Index: worker_pkey.
with held as (
  select distinct worker from rowlock.lease where worker = any ($1::bigint[])
), gone as (
  delete from rowlock.worker w where w.id = any ($1::bigint[]) and not exists (select from held where held.worker = w.id)
)
select count(*) from held
