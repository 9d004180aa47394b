-- Frees a slot, only while the token that took it still has its lease; no row if the slot was lost before.
-- Index: rowlock_lease by id, rowlock_body_lock by key and slot.
delete from rowlock_body_lock
where key = ?4 and slot = ?5 and id = ?1 and epoch = ?2 and worker = ?3
  and exists (select 1 from rowlock_lease l where l.id = ?1 and l.epoch = ?2 and l.worker = ?3)
returning slot
