-- Checks that a job that is in no place is done or cancelled, as far back as history is kept.
-- Index: job_pkey, from the newest job on; ready_id, lease_pkey, waiting_pkey, case_file_pkey, outcome_id.
with kept as materialized (
  -- No outcome younger than the oldest partition was removed. One hour allows for clocks that were set back.
  select min(substr(c.relname, 9)::date)::timestamp at time zone 'utc' + interval '1 hour' as since
  from pg_inherits i join pg_class c on c.oid = i.inhrelid
  where i.inhparent = 'rowlock.outcome'::regclass and c.relname ~ '^outcome_[0-9]{8}$'
), looked as materialized (
  select id, created_at from rowlock.job order by id desc limit $2
), nowhere as materialized (
  select l.id, l.created_at
  from looked l
  where (select count(*) from rowlock.ready r where r.id = l.id) = 0
    and (select count(*) from rowlock.lease x where x.id = l.id) = 0
    and (select count(*) from rowlock.waiting w where w.id = l.id) = 0
    and (select count(*) from rowlock.case_file c where c.id = l.id) = 0
    -- Looks at the days since the job was enqueued, which is nearly always enough. The next step looks at all days.
    and (
      select 1 from rowlock.outcome o
      where o.id = l.id and o.ended_at >= l.created_at and o.outcome in ('done', 'cancelled') limit 1
    ) is null
), broken as (
  select
    n.id as job,
    case
      when o.outcome is null then 'stands nowhere, and no attempt of it ended'
      else format('stands nowhere, but its last attempt ended as %s', o.outcome)
    end as what
  from nowhere n
  cross join kept k
  left join lateral (
    select x.outcome, x.ended_at from rowlock.outcome x where x.id = n.id order by x.epoch desc limit 1
  ) o on true
  where coalesce(o.ended_at, n.created_at) >= k.since and (o.outcome is null or o.outcome not in ('done', 'cancelled'))
)
select
  (select count(*) from looked) as looked, (select count(*) < $2 from looked) as whole, (select count(*) from broken) as broken,
  (select json_agg(f)::text from (select job, what from broken order by job limit $1) f) as found
