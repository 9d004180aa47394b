-- Removes the oldest rows of the outcome log that ended before the given time, a bounded number at a time.
-- Index: rowlock_outcome by row number, which rises with time; the walk never looks further than its bound.
delete from rowlock_outcome where rowid in (
  select o.rowid
  from (select rowid, ended_at from rowlock_outcome order by rowid limit ?2) o
  where o.ended_at < ?1
)
returning id
