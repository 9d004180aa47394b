-- Frees a slot, only while the token that took it still has its lease; no row if the slot was lost before.
-- Index: lease_pkey, body_lock_pkey.
with mine as materialized (
  select id, epoch, worker from rowlock.lease where id = $1 and epoch = $2 and worker = $3 for share
)
delete from rowlock.body_lock b using mine m
where b.key = $4 and b.slot = $5 and b.id = m.id and b.epoch = m.epoch and b.worker = m.worker
returning b.slot
