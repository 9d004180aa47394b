-- Every job with its state, owner, attempts, last error and next due time. Times are microseconds since the epoch.
create view rowlock_jobs as
select
  j.id,
  j.uid,
  j.kind,
  j.version,
  j.queue,
  j.priority,
  case
    when l.id is not null then 'leased'
    when r.id is not null then 'ready'
    when c.id is not null then 'case'
    when w.id is not null then 'waiting'
    else 'finished'
  end as state,
  coalesce(l.attempt, r.attempt, c.attempt, w.attempt, o.attempt, 0) as attempt,
  coalesce(l.attempts_max, r.attempts_max, c.attempts_max, w.attempts_max, j.attempts_max) as attempts_max,
  coalesce(l.epoch, r.epoch, c.epoch, w.epoch, o.epoch, 0) as epoch,
  r.due_at,
  l.worker,
  l.claimed_at,
  o.outcome as last_outcome,
  o.ended_at as last_ended_at,
  coalesce(o.error, c.reason) as last_error,
  o.result,
  j.payload,
  j.tags,
  j.chain,
  j.position,
  j.expires_at,
  j.created_at,
  j.waits_for,
  k.key,
  j.in_group
from rowlock_job j
left join rowlock_lease l on l.id = j.id
left join rowlock_ready r on r.id = j.id
left join rowlock_case_file c on c.id = j.id
left join rowlock_waiting w on w.id = j.id
left join rowlock_job_key k on k.id = j.id
left join rowlock_outcome o on o.id = j.id and o.epoch = (select max(x.epoch) from rowlock_outcome x where x.id = j.id);

-- How many jobs wait per queue and kind, and since when the oldest is due, in microseconds since the epoch like every
-- time. Jobs in ready are counted up to 100,000 for each queue, kind and priority. Jobs in waiting, lease and case_file
-- are counted up to 100,000 in all. `more` says that there are more. The view answers quickly, however long the backlog
-- is.
create view rowlock_backlog as
with recursive clock as materialized (
  select cast(round(unixepoch('subsec') * 1000) as integer) * 1000 as now
), lane as (
  select * from (
    select r.queue_no, r.kind_no, r.alone, r.priority from rowlock_ready r
    order by r.queue_no, r.kind_no, r.alone, r.priority limit 1
  )
  union all
  select n.queue_no, n.kind_no, n.alone, n.priority
  from lane l
  join rowlock_ready n on n.id = (
    select r.id from rowlock_ready r
    where (r.queue_no, r.kind_no, r.alone, r.priority) > (l.queue_no, l.kind_no, l.alone, l.priority)
    order by r.queue_no, r.kind_no, r.alone, r.priority limit 1
  )
), counted as materialized (
  select
    l.queue_no, l.kind_no,
    (
      select r.id from rowlock_ready r
      where r.queue_no = l.queue_no and r.kind_no = l.kind_no and r.alone = l.alone and r.priority = l.priority
      order by r.due_at, r.id limit 1
    ) as sample,
    (
      select count(*) from (
        select 1 from rowlock_ready r
        where r.queue_no = l.queue_no and r.kind_no = l.kind_no and r.alone = l.alone and r.priority = l.priority
          and r.due_at <= c.now
        limit 100000
      )
    ) as due,
    (
      select count(*) from (
        select 1 from rowlock_ready r
        where r.queue_no = l.queue_no and r.kind_no = l.kind_no and r.alone = l.alone and r.priority = l.priority
          and r.due_at > c.now
        limit 100000
      )
    ) as scheduled
  from lane l cross join clock c
), place as (
  select
    n.queue_no, n.kind_no, n.sample, n.due, n.scheduled, 0 as waiting, 0 as leased, 0 as cases,
    case when r.due_at <= c.now then r.due_at end as oldest, n.due >= 100000 or n.scheduled >= 100000 as more
  from counted n cross join clock c left join rowlock_ready r on r.id = n.sample
  union all
  select w.queue_no, w.kind_no, min(w.id), 0, 0, count(*), 0, 0, null, sum(count(*)) over () >= 100000
  from (select x.queue_no, x.kind_no, x.id from rowlock_waiting x limit 100000) w group by w.queue_no, w.kind_no
  union all
  select l.queue_no, l.kind_no, min(l.id), 0, 0, 0, count(*), 0, null, sum(count(*)) over () >= 100000
  from (select x.queue_no, x.kind_no, x.id from rowlock_lease x limit 100000) l group by l.queue_no, l.kind_no
  union all
  select f.queue_no, f.kind_no, min(f.id), 0, 0, 0, 0, count(*), null, sum(count(*)) over () >= 100000
  from (select x.queue_no, x.kind_no, x.id from rowlock_case_file x limit 100000) f group by f.queue_no, f.kind_no
)
select
  coalesce(j.queue, '?') as queue,
  coalesce(j.kind, '?') as kind,
  sum(p.due) as due,
  sum(p.scheduled) as scheduled,
  sum(p.waiting) as waiting,
  sum(p.leased) as leased,
  sum(p.cases) as cases,
  -- If one of the other places is not counted to its end, the queues of the remaining jobs are unknown.
  max(max(p.more), (select coalesce(max(x.more and x.due + x.scheduled = 0), 0) from place x)) as more,
  min(p.oldest) as oldest_due_at
from place p left join rowlock_job j on j.id = p.sample
group by 1, 2;

-- Which worker has which job, for how long, and whether the lease is over. A worker that is silent for longer than its
-- lease has lost the lease.
create view rowlock_held as
select
  l.id,
  j.kind,
  j.queue,
  l.attempt,
  l.attempts_max,
  l.epoch,
  l.worker,
  w.name as worker_name,
  l.claimed_at,
  cast(round(unixepoch('subsec') * 1000) as integer) * 1000 - l.claimed_at as held_for,
  w.beat as last_beat,
  coalesce(w.dead or w.beat < cast(round(unixepoch('subsec') * 1000) as integer) * 1000 - w.lease_ms * 1000, 1) as expired
from rowlock_lease l
left join rowlock_worker w on w.id = l.worker
left join rowlock_job j on j.id = l.id;

-- Every job that is not simply waiting to be claimed for the first time: why, which worker has it, since when, how
-- often it was tried, how the last attempt ended, and when it may be tried again.
create view rowlock_stuck as
select
  s.id, j.kind, j.queue, s.state, s.why, s.holder,
  coalesce(s.since, (select x.ended_at from rowlock_outcome x where x.id = s.id order by x.epoch desc limit 1)) as since,
  s.attempt, s.attempts_max,
  (select x.error from rowlock_outcome x where x.id = s.id order by x.epoch desc limit 1) as last_error, s.eligible_at
from (
  select
    h.id, 'leased' as state, case when h.expired then 'its worker is silent' else 'it runs' end as why,
    coalesce(h.worker_name, h.worker) as holder, h.claimed_at as since, h.attempt, h.attempts_max, null as eligible_at
  from rowlock_held h
  union all
  select r.id, 'ready', 'it was tried', null, null, r.attempt, r.attempts_max, r.due_at
  from rowlock_ready r where r.epoch > 0
  union all
  select
    w.id, 'waiting',
    case
      when w.name is not null then 'it waits for ' || w.name
      when g.paused then 'its group is paused'
      else 'it waits behind job ' || coalesce(g.head, '?') || coalesce(', a case: ' || f.reason, '')
    end,
    null, w.since, w.attempt, w.attempts_max, null
  from rowlock_waiting w
  left join rowlock_job_group g on g.no = w.group_no
  left join rowlock_case_file f on f.id = g.head
  union all
  select c.id, 'case', c.reason, c.owner, c.retired_at, c.attempt, c.attempts_max, null
  from rowlock_case_file c
) s
left join rowlock_job j on j.id = s.id;

-- External calls that may or may not have happened.
create view rowlock_doubts as
select
  e.no, e.id, j.kind, j.queue, e.name, e.key, e.policy, e.tries, e.begun_at,
  cast(round(unixepoch('subsec') * 1000) as integer) * 1000 - e.begun_at as in_doubt_for, e.error
from rowlock_effect e
left join rowlock_job j on j.id = e.id
where e.state in ('open', 'uncertain') and (e.state = 'uncertain' or not exists (
  select 1 from rowlock_lease l where l.id = e.id and l.epoch = e.epoch and l.worker = e.worker
));

-- Open cases by what they have in common.
create view rowlock_case_errors as
select
  e.no, e.error, count(*) as cases, e.first_seen, e.last_seen, e.seen, min(c.id) as oldest_case, max(c.id) as newest_case
from rowlock_case_file c
join rowlock_case_error e on e.no = c.error_no
group by e.no, e.error, e.first_seen, e.last_seen, e.seen;

-- What the file holds, and how much of it is free. Removed rows leave free pages, which new rows use.
create view rowlock_dead_rows as
select p.page_count * s.page_size as bytes, f.freelist_count * s.page_size as free_bytes
from pragma_page_count p, pragma_freelist_count f, pragma_page_size s;
