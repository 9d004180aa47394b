-- Checks that a job is in the place that its last outcome led to, under the epoch that this outcome left.
-- Index: rowlock_ready, rowlock_waiting, rowlock_lease and rowlock_case_file by id, each from its newest job on;
-- rowlock_outcome_id, rowlock_job by id, rowlock_audit_id.
with looked as materialized (
  select * from (
    select id, 'ready' as place, epoch, epoch as ended, attempts_max from rowlock_ready order by id desc limit +?2
  )
  union all
  select * from (select id, 'waiting', epoch, epoch, attempts_max from rowlock_waiting order by id desc limit +?2)
  union all
  select * from (select id, 'leased', epoch, epoch - 1, attempts_max from rowlock_lease order by id desc limit +?2)
  union all
  select * from (select id, 'case', epoch, epoch, attempts_max from rowlock_case_file order by id desc limit +?2)
), last as (
  select l.*, o.epoch as last, o.outcome, o.attempt
  from looked l
  left join rowlock_outcome o
    on o.id = l.id and o.epoch = (select max(x.epoch) from rowlock_outcome x where x.id = l.id)
  where o.epoch is not null or l.ended > 0
), broken as materialized (
  select
    l.id as job,
    case
      when l.last is null then format('is %s under epoch %d, but no attempt of it ended', l.place, l.epoch)
      when l.last <> l.ended then format('is %s under epoch %d, but its last outcome is of epoch %d', l.place, l.epoch, l.last)
      else format('is %s, but its last attempt ended as %s', l.place, l.outcome)
    end as what
  from last l
  where l.last <> l.ended
    or (l.outcome in ('done', 'cancelled')
      and (select count(*) from rowlock_audit a where a.id = l.id and a.verb = 'rerun')
        < (select count(*) from rowlock_outcome x where x.id = l.id and x.outcome in ('done', 'cancelled')))
    or (l.place = 'case' and l.outcome <> 'retired' and not (l.outcome = 'lost' and l.attempt >= l.attempts_max))
    or (l.place <> 'case' and (l.outcome = 'retired' or (l.outcome = 'lost' and l.attempt >= l.attempts_max))
      and not exists (select 1 from rowlock_audit a where a.id = l.id and a.verb = 'reopen'))
    -- History is kept for at least one hour. Ten minutes less allow for clocks that were set back.
    or (l.last is null and exists (
      select 1 from rowlock_job j where j.id = l.id and j.created_at >= ?3 - 50 * 60 * 1000000))
)
select
  (select count(*) from looked) as looked,
  not exists (select 1 from looked group by place having count(*) >= ?2) as whole,
  (select count(*) from broken) as broken,
  (select json_group_array(json_object('job', job, 'what', what)) from (select job, what from broken order by job limit +?1)) as found
