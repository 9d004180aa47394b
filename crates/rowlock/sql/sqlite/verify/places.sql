-- Checks that a job is in at most one place.
-- Index: rowlock_ready, rowlock_waiting, rowlock_lease and rowlock_case_file by id, each from its newest job on.
with looked as materialized (
  select * from (select id, 'ready' as place from rowlock_ready order by id desc limit +?2)
  union all
  select * from (select id, 'waiting' from rowlock_waiting order by id desc limit +?2)
  union all
  select * from (select id, 'leased' from rowlock_lease order by id desc limit +?2)
  union all
  select * from (select id, 'case' from rowlock_case_file order by id desc limit +?2)
), stood as (
  select distinct
    l.id,
    concat_ws(', ',
      case when exists (select 1 from rowlock_ready r where r.id = l.id) then 'ready' end,
      case when exists (select 1 from rowlock_waiting w where w.id = l.id) then 'waiting' end,
      case when exists (select 1 from rowlock_lease x where x.id = l.id) then 'leased' end,
      case when exists (select 1 from rowlock_case_file c where c.id = l.id) then 'case' end
    ) as places
  from looked l
), broken as materialized (
  select id as job, format('stands in several places: %s', places) as what from stood where places like '%,%'
)
select
  (select count(*) from looked) as looked,
  not exists (select 1 from looked group by place having count(*) >= ?2) as whole,
  (select count(*) from broken) as broken,
  (select json_group_array(json_object('job', job, 'what', what)) from (select job, what from broken order by job limit +?1)) as found
