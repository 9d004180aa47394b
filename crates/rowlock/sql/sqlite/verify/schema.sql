-- Checks that every migration up to the newest one has run.
-- Index: rowlock_migration by version, all of it (a row per migration).
with recursive looked (n) as (
  select 1
  union all
  select n + 1 from looked where n < (select max(version) from rowlock_migration)
), broken as (
  select null as job, format('migration %d has not run, though a later one has', n) as what
  from looked where not exists (select 1 from rowlock_migration m where m.version = n)
)
select
  (select count(*) from looked) as looked, 1 as whole, (select count(*) from broken) as broken,
  (select json_group_array(json_object('job', job, 'what', what)) from (select job, what from broken order by job limit +?1)) as found
