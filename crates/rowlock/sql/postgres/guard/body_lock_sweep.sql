-- Removes body locks whose lease is gone, a bounded number per call; such locks hold nothing.
-- Index: body_lock_pkey, all of it (one row per holder); lease_pkey.
with old as materialized (
  select b.key, b.slot, b.id, b.epoch, b.worker
  from rowlock.body_lock b
  where not exists (select from rowlock.lease l where l.id = b.id and l.epoch = b.epoch and l.worker = b.worker)
  limit $1
)
delete from rowlock.body_lock b using old o
where b.key = o.key and b.slot = o.slot and b.id = o.id and b.epoch = o.epoch and b.worker = o.worker
