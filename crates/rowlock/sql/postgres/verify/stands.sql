-- Checks that a job is in the place that its last outcome led to, under the epoch that this outcome left.
-- Index: ready_id, waiting_pkey, lease_pkey, case_file_pkey, each from its newest job on; outcome_id, job_pkey,
-- audit_id.
with kept as materialized (
  -- No outcome younger than the oldest partition was removed. One hour allows for clocks that were set back.
  select min(substr(c.relname, 9)::date)::timestamp at time zone 'utc' + interval '1 hour' as since
  from pg_inherits i join pg_class c on c.oid = i.inhrelid
  where i.inhparent = 'rowlock.outcome'::regclass and c.relname ~ '^outcome_[0-9]{8}$'
), looked as materialized (
  (select id, 'ready' as place, epoch, epoch as ended, attempts_max from rowlock.ready order by id desc limit $2)
  union all
  (select id, 'waiting', epoch, epoch, attempts_max from rowlock.waiting order by id desc limit $2)
  union all
  (select id, 'leased', epoch, epoch - 1, attempts_max from rowlock.lease order by id desc limit $2)
  union all
  (select id, 'case', epoch, epoch, attempts_max from rowlock.case_file order by id desc limit $2)
), last as (
  select l.*, o.epoch as last, o.outcome, o.attempt
  from looked l
  left join lateral (
    select x.epoch, x.outcome, x.attempt from rowlock.outcome x where x.id = l.id order by x.epoch desc limit 1
  ) o on true
  where o.epoch is not null or l.ended > 0
), broken as (
  select
    l.id as job,
    case
      when l.last is null then format('is %s under epoch %s, but no attempt of it ended', l.place, l.epoch)
      when l.last <> l.ended then format('is %s under epoch %s, but its last outcome is of epoch %s', l.place, l.epoch, l.last)
      else format('is %s, but its last attempt ended as %s', l.place, l.outcome)
    end as what
  from last l
  where l.last <> l.ended
    or (l.outcome in ('done', 'cancelled')
      and (select count(*) from rowlock.audit a where a.id = l.id and a.verb = 'rerun')
        < (select count(*) from rowlock.outcome x where x.id = l.id and x.outcome in ('done', 'cancelled')))
    or (l.place = 'case' and l.outcome <> 'retired' and not (l.outcome = 'lost' and l.attempt >= l.attempts_max))
    or (l.place <> 'case' and (l.outcome = 'retired' or (l.outcome = 'lost' and l.attempt >= l.attempts_max))
      and (select count(*) from rowlock.audit a where a.id = l.id and a.verb = 'reopen') = 0)
    or (l.last is null
      and (select max(j.created_at) from rowlock.job j where j.id = l.id) >= (select since from kept))
)
select
  (select count(*) from looked) as looked,
  not exists (select from looked group by place having count(*) >= $2) as whole,
  (select count(*) from broken) as broken,
  (select json_agg(f)::text from (select job, what from broken order by job limit $1) f) as found
