-- Checks that each enqueue key names an enqueued job, one key per job, and ends if it is held for a period.
-- Index: job_key_id, from the newest job on; job_pkey, outcome_id.
with kept as materialized (
  -- No outcome younger than the oldest partition was removed. One hour allows for clocks that were set back.
  select min(substr(c.relname, 9)::date)::timestamp at time zone 'utc' + interval '1 hour' as since
  from pg_inherits i join pg_class c on c.oid = i.inhrelid
  where i.inhparent = 'rowlock.outcome'::regclass and c.relname ~ '^outcome_[0-9]{8}$'
), looked as materialized (
  select key, id, hold, expires_at, made_at from rowlock.job_key order by id desc limit $2
), judged as (
  select
    l.id, l.key,
    case
      when count(*) over (partition by l.id) > 1 then 'is one of several of its job'
      when (l.hold = 'period') <> (l.expires_at is not null) then format('is held by %s, and its end says otherwise', l.hold)
      when l.made_at >= k.since
        and (select count(*) from rowlock.job j where j.id = l.id) = 0
        and (select 1 from rowlock.outcome o where o.id = l.id limit 1) is null
      then 'names a job that was never enqueued'
    end as what
  from looked l cross join kept k
), broken as (
  select id as job, format('key "%s" %s', key, what) as what from judged where what is not null
)
select
  (select count(*) from looked) as looked, (select count(*) < $2 from looked) as whole, (select count(*) from broken) as broken,
  (select json_agg(f)::text from (select job, what from broken order by job limit $1) f) as found
