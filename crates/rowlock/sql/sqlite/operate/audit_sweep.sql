-- Removes audit entries from before the given time about jobs that are gone, a bounded number per call.
-- Index: rowlock_audit by no, from its oldest entry on; rowlock_job by id.
delete from rowlock_audit where no in (
  select a.no from rowlock_audit a
  where a.at < ?1 and not exists (select 1 from rowlock_job j where j.id = a.id)
  order by a.no limit +?2
)
