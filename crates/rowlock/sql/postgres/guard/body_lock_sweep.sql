-- Removes body locks whose lease is gone, a bounded number at a time: they hold nothing any more.
-- Index: body_lock_pkey, all of it (there are as many as there are holders); lease_pkey.
with old as materialized (
  select b.key, b.slot, b.id, b.epoch, b.worker
  from rowlock.body_lock b
  where not exists (select from rowlock.lease l where l.id = b.id and l.epoch = b.epoch and l.worker = b.worker)
  limit $1
)
delete from rowlock.body_lock b using old o
where b.key = o.key and b.slot = o.slot and b.id = o.id and b.epoch = o.epoch and b.worker = o.worker
