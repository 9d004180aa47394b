-- Removes the effects of jobs whose bodies were just removed; a job with an effect in doubt kept its body.
-- Index: rowlock_job by id, the unique index of rowlock_effect.
-- only here: PostgreSQL removes them inside job/prune.sql and case/sweep.sql.
delete from rowlock_effect where id in (
  select p.value from json_each(?1) p where not exists (select 1 from rowlock_job j where j.id = p.value)
)
