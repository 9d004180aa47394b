-- Removes outcome rows between two row numbers that ended before the given time.
-- Index: rowlock_outcome by row number; the unique index of rowlock_effect.
-- It keeps the rows of jobs that have an effect in doubt.
delete from rowlock_outcome
where rowid > ?2 and rowid <= ?3 and ended_at < ?1
  and not exists (
    select 1 from rowlock_effect e where e.id = rowlock_outcome.id and e.state in ('open', 'uncertain')
  )
returning id
