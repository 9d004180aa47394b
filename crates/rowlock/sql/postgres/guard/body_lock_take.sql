-- Takes a slot of a key for the holder of a token: a free slot, or one whose holder's lease is gone.
-- Index: lease_pkey, body_lock_pkey.
-- One statement is enough. A token without a lease never gets one again, so a slot that an older snapshot sees as
-- abandoned stays abandoned. The update compares that token.
-- If a reply was lost, the holder gets its own slot again.
with mine as materialized (
  select id, epoch, worker from rowlock.lease where id = $1 and epoch = $2 and worker = $3 for share
), seen as materialized (
  select
    b.slot, b.id, b.epoch, b.worker, l.id is null as abandoned,
    b.id = $1 and b.epoch = $2 and b.worker = $3 as own
  from rowlock.body_lock b
  left join rowlock.lease l on l.id = b.id and l.epoch = b.epoch and l.worker = b.worker
  where b.key = $4 and b.slot <= $5
), own as (
  select slot from seen where own limit 1
), left_over as (
  select slot, id, epoch, worker from seen where abandoned and not exists (select from own) order by slot limit 1
), swapped as (
  update rowlock.body_lock b
  set id = m.id, epoch = m.epoch, worker = m.worker, taken_at = coalesce($6::timestamptz, clock_timestamp())
  from mine m, left_over o
  where b.key = $4 and b.slot = o.slot and b.id = o.id and b.epoch = o.epoch and b.worker = o.worker
  returning b.slot
), fresh as (
  select s.slot
  from generate_series(1, $5::int) as s (slot)
  where not exists (select from own) and not exists (select from left_over)
    and not exists (select from seen where seen.slot = s.slot)
  order by s.slot limit 1
), added as (
  insert into rowlock.body_lock (key, slot, id, epoch, worker, taken_at)
  select $4, f.slot, m.id, m.epoch, m.worker, coalesce($6::timestamptz, clock_timestamp()) from mine m, fresh f
  on conflict (key, slot) do nothing
  returning slot
)
select
  exists (select from mine) as leased,
  coalesce((select slot from own), (select slot from swapped), (select slot from added)) as slot,
  exists (select from left_over) or exists (select from fresh) as tried
