-- Checks that a job of a group that may run is the head of its group, and that turns are passed on in time.
-- Index: ready_id, lease_pkey, waiting_pkey, each from its newest job on; job_pkey, job_group_pkey, case_file_pkey.
-- A quarter of an hour is enough for any sweep.
with clock as materialized (
  select coalesce($3::timestamptz, clock_timestamp()) - interval '15 minutes' as by
), looked as materialized (
  (select id, 'ready' as place, null::bigint as group_no, null::timestamptz as since from rowlock.ready order by id desc limit $2)
  union all
  (select id, 'leased', null, null from rowlock.lease order by id desc limit $2)
  union all
  (select id, 'waiting', group_no, since from rowlock.waiting order by id desc limit $2)
), running as (
  select l.id, l.place, j.in_group, g.head
  from looked l
  join rowlock.job j on j.id = l.id and j.group_no is not null
  left join lateral (
    select x.head from rowlock.job_group x where x.no = j.group_no limit 1
  ) g on true
  where l.place <> 'waiting'
), behind as (
  select l.id, l.since, g.no, g.head, g.paused
  from looked l
  left join lateral (
    select x.no, x.head, x.paused from rowlock.job_group x where x.no = l.group_no limit 1
  ) g on true
  where l.place = 'waiting' and l.group_no is not null
), broken as (
  select r.id as job, format('is %s, but in group "%s" it is the turn of %s', r.place, r.in_group, coalesce(r.head::text, 'nobody')) as what
  from running r where r.head is distinct from r.id
  union all
  select b.id, case when b.no is null then 'waits in a group that is gone' else format('waits behind job %s, which stands nowhere', b.head) end
  from behind b cross join clock c
  where b.since < c.by and (
    b.no is null
    or (b.head is null and not b.paused)
    or (b.head is not null
      and (select count(*) from rowlock.ready r where r.id = b.head) = 0
      and (select count(*) from rowlock.lease x where x.id = b.head) = 0
      and (select count(*) from rowlock.case_file f where f.id = b.head) = 0)
  )
)
select
  (select count(*) from looked) as looked,
  not exists (select from looked group by place having count(*) >= $2) as whole,
  (select count(*) from broken) as broken,
  (select json_agg(f)::text from (select job, what from broken order by job limit $1) f) as found
