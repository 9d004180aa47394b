-- Removes the rows of the outcome log between two numbers that ended before the given time, unless their job has an effect in doubt.
-- Index: rowlock_outcome by row number; the unique index of rowlock_effect.
delete from rowlock_outcome
where rowid > ?2 and rowid <= ?3 and ended_at < ?1
  and not exists (
    select 1 from rowlock_effect e where e.id = rowlock_outcome.id and e.state in ('open', 'uncertain')
  )
returning id
