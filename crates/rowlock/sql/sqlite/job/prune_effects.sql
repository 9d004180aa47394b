-- Removes the effects of jobs whose bodies were just removed; one in doubt kept its job's body from that.
-- Index: rowlock_job by id, the unique index of rowlock_effect.
-- no twin: postgresql removes them inside job/prune.sql and case/sweep.sql.
delete from rowlock_effect where id in (
  select p.value from json_each(?1) p where not exists (select 1 from rowlock_job j where j.id = p.value)
)
