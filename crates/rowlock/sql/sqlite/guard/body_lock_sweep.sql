-- Removes body locks whose lease is gone, a bounded number per call; such locks hold nothing.
-- Index: rowlock_body_lock, all of it (one row per holder); rowlock_lease by id.
delete from rowlock_body_lock where rowid in (
  select b.rowid from rowlock_body_lock b
  where not exists (
    select 1 from rowlock_lease l where l.id = b.id and l.epoch = b.epoch and l.worker = b.worker
  )
  limit +?1
)
