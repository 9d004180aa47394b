-- Checks that each enqueue key names an enqueued job, one key per job, and ends if it is held for a period.
-- Index: rowlock_job_key_id, from the newest job on; rowlock_job by id, rowlock_outcome_id.
with looked as materialized (
  select key, id, hold, expires_at, made_at from rowlock_job_key order by id desc limit +?2
), judged as (
  select
    l.id, l.key,
    case
      when count(*) over (partition by l.id) > 1 then 'is one of several of its job'
      when (l.hold = 'period') <> (l.expires_at is not null) then format('is held by %s, and its end says otherwise', l.hold)
      -- History is kept for at least one hour. Ten minutes less allow for clocks that were set back.
      when l.made_at >= ?3 - 50 * 60 * 1000000
        and not exists (select 1 from rowlock_job j where j.id = l.id)
        and not exists (select 1 from rowlock_outcome o where o.id = l.id)
      then 'names a job that was never enqueued'
    end as what
  from looked l
), broken as materialized (
  select id as job, format('key "%s" %s', key, what) as what from judged where what is not null
)
select
  (select count(*) from looked) as looked, (select count(*) < ?2 from looked) as whole, (select count(*) from broken) as broken,
  (select json_group_array(json_object('job', job, 'what', what)) from (select job, what from broken order by job limit +?1)) as found
