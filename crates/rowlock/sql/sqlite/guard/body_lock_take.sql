-- Takes a slot of a key for the holder of a token: a free slot, or one whose holder's lease is gone.
-- Index: rowlock_lease by id, rowlock_body_lock by key and slot.
-- If a reply was lost, the holder gets its own slot again.
with recursive slots (slot) as (
  select 1 union all select slot + 1 from slots where slot < ?5
)
insert into rowlock_body_lock (key, slot, id, epoch, worker, taken_at)
select ?4, s.slot, m.id, m.epoch, m.worker, ?6
from rowlock_lease m
cross join slots s
left join rowlock_body_lock b on b.key = ?4 and b.slot = s.slot
left join rowlock_lease l on l.id = b.id and l.epoch = b.epoch and l.worker = b.worker
where m.id = ?1 and m.epoch = ?2 and m.worker = ?3 and (l.id is null or l.id = m.id)
order by l.id is null, s.slot
limit 1
on conflict (key, slot) do update set id = excluded.id, epoch = excluded.epoch, worker = excluded.worker, taken_at = excluded.taken_at
returning slot
