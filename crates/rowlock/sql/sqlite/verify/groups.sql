-- Checks that a job of a group that may run is the head of its group, and that waiting jobs have a head.
-- Index: rowlock_ready, rowlock_lease and rowlock_waiting by id, each from its newest job on; rowlock_job by id,
-- rowlock_job_group by no.
with looked as materialized (
  select * from (select id, 'ready' as place, null as group_no from rowlock_ready order by id desc limit +?2)
  union all
  select * from (select id, 'leased', null from rowlock_lease order by id desc limit +?2)
  union all
  select * from (select id, 'waiting', group_no from rowlock_waiting order by id desc limit +?2)
), broken as materialized (
  select
    l.id as job,
    format('is %s, but in group "%s" it is the turn of %s', l.place, j.in_group, coalesce(g.head, 'nobody')) as what
  from looked l
  cross join rowlock_job j on j.id = l.id and j.group_no is not null
  left join rowlock_job_group g on g.no = j.group_no
  where l.place <> 'waiting' and g.head is not l.id
  union all
  select
    l.id,
    case when g.no is null then 'waits in a group that is gone' else format('waits behind job %s, which stands nowhere', g.head) end
  from looked l
  left join rowlock_job_group g on g.no = l.group_no
  where l.group_no is not null and (
    g.no is null
    or (g.head is null and g.paused = 0)
    or (g.head is not null
      and not exists (select 1 from rowlock_ready r where r.id = g.head)
      and not exists (select 1 from rowlock_lease x where x.id = g.head)
      and not exists (select 1 from rowlock_case_file f where f.id = g.head))
  )
)
select
  (select count(*) from looked) as looked,
  not exists (select 1 from looked group by place having count(*) >= ?2) as whole,
  (select count(*) from broken) as broken,
  (select json_group_array(json_object('job', job, 'what', what)) from (select job, what from broken order by job limit +?1)) as found
