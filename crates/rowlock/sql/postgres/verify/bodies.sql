-- Checks that a job that is in a place has its body.
-- Index: ready_id, waiting_pkey, lease_pkey, case_file_pkey, each from its newest job on; job_pkey.
with looked as materialized (
  (select id, 'ready' as place from rowlock.ready order by id desc limit $2)
  union all
  (select id, 'waiting' from rowlock.waiting order by id desc limit $2)
  union all
  (select id, 'leased' from rowlock.lease order by id desc limit $2)
  union all
  (select id, 'case' from rowlock.case_file order by id desc limit $2)
), broken as (
  select l.id as job, format('is %s, but its body is gone', l.place) as what
  from looked l where (select count(*) from rowlock.job j where j.id = l.id) = 0
)
select
  (select count(*) from looked) as looked,
  not exists (select from looked group by place having count(*) >= $2) as whole,
  (select count(*) from broken) as broken,
  (select json_agg(f)::text from (select job, what from broken order by job limit $1) f) as found
