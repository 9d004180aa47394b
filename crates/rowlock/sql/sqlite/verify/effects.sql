-- Checks that each effect belongs to a job and one of its attempts, has its job's key, and a reply only if replied.
-- Index: rowlock_effect by number, from the newest on; rowlock_job, rowlock_ready, rowlock_lease, rowlock_waiting and
-- rowlock_case_file by id, rowlock_outcome_id.
-- An effect that is replied must have a reply.
with looked as materialized (
  select no, id, name, key, state, epoch, ended_at, reply is not null as answered
  from rowlock_effect order by no desc limit +?2
), judged as (
  select
    l.id, l.no, l.name,
    case
      when count(*) over (partition by l.id, l.name) > 1 then 'is there twice'
      when j.id is null then 'has no job'
      when l.key <> j.uid || ':' || l.name then 'has another key than its job gives it'
      when l.answered <> (l.state = 'replied') then format('is %s, and its reply says otherwise', l.state)
      when (l.ended_at is null) <> (l.state = 'open') then format('is %s, and its time says otherwise', l.state)
      when not exists (select 1 from rowlock_lease x where x.id = l.id and x.epoch >= l.epoch)
        and not exists (select 1 from rowlock_outcome o where o.id = l.id and o.epoch >= l.epoch)
        and (
          exists (select 1 from rowlock_lease x where x.id = l.id)
          or exists (select 1 from rowlock_ready r where r.id = l.id and r.epoch < l.epoch)
          or exists (select 1 from rowlock_waiting w where w.id = l.id and w.epoch < l.epoch)
          or exists (select 1 from rowlock_case_file c where c.id = l.id and c.epoch < l.epoch)
          or exists (select 1 from rowlock_outcome o where o.id = l.id)
        )
      then format('is of epoch %d, which its job has not come to', l.epoch)
    end as what
  from looked l left join rowlock_job j on j.id = l.id
), broken as materialized (
  select id as job, format('effect %d "%s" %s', no, name, what) as what from judged where what is not null
)
select
  (select count(*) from looked) as looked, (select count(*) < ?2 from looked) as whole, (select count(*) from broken) as broken,
  (select json_group_array(json_object('job', job, 'what', what)) from (select job, what from broken order by job limit +?1)) as found
