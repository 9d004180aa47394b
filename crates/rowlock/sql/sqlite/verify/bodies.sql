-- Checks that a job that is in a place has its body.
-- Index: rowlock_ready, rowlock_waiting, rowlock_lease and rowlock_case_file by id, each from its newest job on;
-- rowlock_job by id.
with looked as materialized (
  select * from (select id, 'ready' as place from rowlock_ready order by id desc limit +?2)
  union all
  select * from (select id, 'waiting' from rowlock_waiting order by id desc limit +?2)
  union all
  select * from (select id, 'leased' from rowlock_lease order by id desc limit +?2)
  union all
  select * from (select id, 'case' from rowlock_case_file order by id desc limit +?2)
), broken as materialized (
  select l.id as job, format('is %s, but its body is gone', l.place) as what
  from looked l where not exists (select 1 from rowlock_job j where j.id = l.id)
)
select
  (select count(*) from looked) as looked,
  not exists (select 1 from looked group by place having count(*) >= ?2) as whole,
  (select count(*) from broken) as broken,
  (select json_group_array(json_object('job', job, 'what', what)) from (select job, what from broken order by job limit +?1)) as found
