-- Checks that waits that are over, by limit or completion, are ended in time: a quarter of an hour is enough.
-- Index: rowlock_waiting by id, from the newest job on; rowlock_completion by name.
with looked as materialized (
  select id, name, limit_at, since from rowlock_waiting order by id desc limit +?2
), broken as materialized (
  select
    l.id as job,
    format(
      'waits for "%s", %s %s', l.name, case when d.name is null then 'though its limit was' else 'which was completed at' end,
      datetime(coalesce(d.completed_at, l.limit_at) / 1000000, 'unixepoch')
    ) as what
  from looked l
  left join rowlock_completion d on d.name = l.name and max(d.completed_at, l.since) < ?3 - 15 * 60 * 1000000
  -- The limit may have been over when the wait began.
  where d.name is not null or max(l.limit_at, l.since) < ?3 - 15 * 60 * 1000000
)
select
  (select count(*) from looked) as looked, (select count(*) < ?2 from looked) as whole, (select count(*) from broken) as broken,
  (select json_group_array(json_object('job', job, 'what', what)) from (select job, what from broken order by job limit +?1)) as found
