-- Checks that waits that are over, by limit or completion, are ended in time: a quarter of an hour is enough.
-- Index: waiting_pkey, from the newest job on; completion_pkey.
with clock as materialized (
  select coalesce($3::timestamptz, clock_timestamp()) - interval '15 minutes' as by
), looked as materialized (
  select id, name, limit_at, since from rowlock.waiting order by id desc limit $2
), broken as (
  select
    l.id as job,
    case
      when d.name is not null then format('waits for "%s", which was completed at %s', l.name, d.completed_at)
      else format('waits for "%s", though its limit was %s', l.name, l.limit_at)
    end as what
  from looked l
  cross join clock c
  left join lateral (
    select x.name, x.completed_at from rowlock.completion x
    where x.name = l.name and greatest(x.completed_at, l.since) < c.by limit 1
  ) d on true
  -- The limit may have been over when the wait began.
  where d.name is not null or (l.limit_at < c.by and l.since < c.by)
)
select
  (select count(*) from looked) as looked, (select count(*) < $2 from looked) as whole, (select count(*) from broken) as broken,
  (select json_agg(f)::text from (select job, what from broken order by job limit $1) f) as found
