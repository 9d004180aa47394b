-- Checks that each effect belongs to a job and one of its attempts, has its job's key, and a reply only if replied.
-- Index: effect_pkey, from the newest on; job_pkey, ready_id, lease_pkey, waiting_pkey, case_file_pkey, outcome_id.
-- An effect that is replied must have a reply.
with looked as materialized (
  select no, id, name, key, state, epoch, begun_at, ended_at, reply is not null as answered
  from rowlock.effect order by no desc limit $2
), judged as (
  select
    l.id, l.no, l.name,
    case
      when count(*) over (partition by l.id, l.name) > 1 then 'is there twice'
      when j.id is null then 'has no job'
      when l.key <> j.uid || ':' || l.name then 'has another key than its job gives it'
      when l.answered <> (l.state = 'replied') then format('is %s, and its reply says otherwise', l.state)
      when (l.ended_at is null) <> (l.state = 'open') then format('is %s, and its time says otherwise', l.state)
      when (select count(*) from rowlock.lease x where x.id = l.id and x.epoch >= l.epoch) = 0
        -- Looks at the days since the effect was begun, which is nearly always enough.
        and (
          select 1 from rowlock.outcome o where o.id = l.id and o.epoch >= l.epoch and o.ended_at >= l.begun_at limit 1
        ) is null
        and (select 1 from rowlock.outcome o where o.id = l.id and o.epoch >= l.epoch limit 1) is null
        and (
          (select count(*) from rowlock.lease x where x.id = l.id)
          + (select count(*) from rowlock.ready r where r.id = l.id and r.epoch < l.epoch)
          + (select count(*) from rowlock.waiting w where w.id = l.id and w.epoch < l.epoch)
          + (select count(*) from rowlock.case_file c where c.id = l.id and c.epoch < l.epoch)
          + (select count(*) from rowlock.outcome o where o.id = l.id and o.epoch < l.epoch)
        ) > 0
      then format('is of epoch %s, which its job has not come to', l.epoch)
    end as what
  from looked l
  left join lateral (select x.id, x.uid from rowlock.job x where x.id = l.id limit 1) j on true
), broken as (
  select id as job, format('effect %s "%s" %s', no, name, what) as what from judged where what is not null
)
select
  (select count(*) from looked) as looked, (select count(*) < $2 from looked) as whole, (select count(*) from broken) as broken,
  (select json_agg(f)::text from (select job, what from broken order by job limit $1) f) as found
