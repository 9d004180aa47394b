-- Removes body locks whose lease is gone, a bounded number at a time: they hold nothing any more.
-- Index: rowlock_body_lock, all of it (there are as many as there are holders); rowlock_lease by id.
delete from rowlock_body_lock where rowid in (
  select b.rowid from rowlock_body_lock b
  where not exists (
    select 1 from rowlock_lease l where l.id = b.id and l.epoch = b.epoch and l.worker = b.worker
  )
  limit +?1
)
