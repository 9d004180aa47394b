-- Removes cases retired before the given time, a bounded number per call; keeps every case with an effect in doubt.
-- Index: rowlock_case_file, all of it (cases are few); the unique index of rowlock_effect.
delete from rowlock_case_file where id in (
  select c.id from rowlock_case_file c
  where c.retired_at < ?1
    and not exists (select 1 from rowlock_effect e where e.id = c.id and e.state in ('open', 'uncertain'))
  limit +?2
)
returning id
