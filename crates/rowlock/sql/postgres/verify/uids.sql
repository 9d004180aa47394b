-- Checks that no two jobs share a uid, because the keys of their effects are made from it.
-- Index: job_pkey, from the newest job on.
with looked as materialized (
  select id, uid from rowlock.job order by id desc limit $2
), broken as (
  select max(id) as job, format('shares its uid %s with job %s', uid, min(id)) as what
  from looked group by uid having count(*) > 1
)
select
  (select count(*) from looked) as looked, (select count(*) < $2 from looked) as whole, (select count(*) from broken) as broken,
  (select json_agg(f)::text from (select job, what from broken order by job limit $1) f) as found
