-- Checks that every migration up to the newest one has run.
-- Index: migration_pkey, all of it (a row per migration).
with looked as materialized (
  select n from generate_series(1, (select max(version) from rowlock.migration)) as s (n)
), broken as (
  select null::bigint as job, format('migration %s has not run, though a later one has', n) as what
  from looked where not exists (select from rowlock.migration m where m.version = n)
)
select
  (select count(*) from looked) as looked, true as whole, (select count(*) from broken) as broken,
  (select json_agg(f)::text from (select job, what from broken order by job limit $1) f) as found
