-- Checks that a job is in at most one place.
-- Index: ready_id, waiting_pkey, lease_pkey, case_file_pkey, each from its newest job on.
with looked as materialized (
  (select id, 'ready' as place from rowlock.ready order by id desc limit $2)
  union all
  (select id, 'waiting' from rowlock.waiting order by id desc limit $2)
  union all
  (select id, 'leased' from rowlock.lease order by id desc limit $2)
  union all
  (select id, 'case' from rowlock.case_file order by id desc limit $2)
), stood as (
  select distinct
    l.id,
    concat_ws(', ',
      case when (select count(*) from rowlock.ready r where r.id = l.id) > 0 then 'ready' end,
      case when (select count(*) from rowlock.waiting w where w.id = l.id) > 0 then 'waiting' end,
      case when (select count(*) from rowlock.lease x where x.id = l.id) > 0 then 'leased' end,
      case when (select count(*) from rowlock.case_file c where c.id = l.id) > 0 then 'case' end
    ) as places
  from looked l
), broken as (
  select id as job, format('stands in several places: %s', places) as what from stood where places like '%,%'
)
select
  (select count(*) from looked) as looked,
  not exists (select from looked group by place having count(*) >= $2) as whole,
  (select count(*) from broken) as broken,
  (select json_agg(f)::text from (select job, what from broken order by job limit $1) f) as found
