-- Removes the bodies of jobs whose last outcome row was just pruned and that are in no place any more.
-- Index: rowlock_job, rowlock_ready, rowlock_lease, rowlock_case_file and rowlock_waiting by id, rowlock_outcome_id.
-- only here: PostgreSQL drops whole partitions of the log, so job/prune.sql looks for bodies alone.
delete from rowlock_job where id in (
  select p.value
  from json_each(?1) p
  where not exists (select 1 from rowlock_outcome o where o.id = p.value)
    and not exists (select 1 from rowlock_ready r where r.id = p.value)
    and not exists (select 1 from rowlock_lease l where l.id = p.value)
    and not exists (select 1 from rowlock_case_file c where c.id = p.value)
    and not exists (select 1 from rowlock_waiting w where w.id = p.value)
)
