-- Removes the locked dead workers that hold nothing; returns how many still hold something.
-- Index: worker_pkey.
-- This is the second half of forgetting, after worker/lock_dead.sql.
with held as (
  select distinct worker from rowlock.lease where worker = any ($1::bigint[])
), gone as (
  delete from rowlock.worker w where w.id = any ($1::bigint[]) and not exists (select from held where held.worker = w.id)
)
select count(*) from held
