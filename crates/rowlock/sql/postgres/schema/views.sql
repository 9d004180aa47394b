-- Every job with its state, owner, attempts, last error and next due time.
create view rowlock.jobs as
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
from rowlock.job j
left join rowlock.lease l on l.id = j.id
left join rowlock.ready r on r.id = j.id
left join rowlock.case_file c on c.id = j.id
left join rowlock.waiting w on w.id = j.id
left join rowlock.job_key k on k.id = j.id
left join lateral (
  select x.attempt, x.epoch, x.outcome, x.ended_at, x.error, x.result
  from rowlock.outcome x where x.id = j.id order by x.epoch desc limit 1
) o on true;

-- How many jobs wait per queue and kind, and since when the oldest is due. Jobs in ready are counted up to 100,000 for
-- each queue, kind and priority. Jobs in waiting, lease and case_file are counted up to 100,000 in all. `more` says
-- that there are more. The view answers quickly, however long the backlog is.
create view rowlock.backlog as
with recursive clock as materialized (
  select clock_timestamp() as now
), lane as (
  (select r.queue_no, r.kind_no, r.alone, r.priority from rowlock.ready r order by 1, 2, 3, 4 limit 1)
  union all
  select n.queue_no, n.kind_no, n.alone, n.priority
  from lane l
  cross join lateral (
    select r.queue_no, r.kind_no, r.alone, r.priority
    from rowlock.ready r
    where (r.queue_no, r.kind_no, r.alone, r.priority) > (l.queue_no, l.kind_no, l.alone, l.priority)
    order by r.queue_no, r.kind_no, r.alone, r.priority limit 1
  ) n
), place as (
  select
    l.queue_no, l.kind_no, f.id as sample, d.jobs as due, s.jobs as scheduled, 0::bigint as waiting, 0::bigint as leased,
    0::bigint as cases, case when f.due_at <= c.now then f.due_at end as oldest, d.jobs >= 100000 or s.jobs >= 100000 as more
  from lane l
  cross join clock c
  cross join lateral (
    select r.id, r.due_at
    from rowlock.ready r
    where r.queue_no = l.queue_no and r.kind_no = l.kind_no and r.alone = l.alone and r.priority = l.priority
    order by r.due_at, r.id limit 1
  ) f
  cross join lateral (
    select count(*) as jobs
    from (
      select from rowlock.ready r
      where r.queue_no = l.queue_no and r.kind_no = l.kind_no and r.alone = l.alone and r.priority = l.priority
        and r.due_at <= c.now
      limit 100000
    ) x
  ) d
  cross join lateral (
    select count(*) as jobs
    from (
      select from rowlock.ready r
      where r.queue_no = l.queue_no and r.kind_no = l.kind_no and r.alone = l.alone and r.priority = l.priority
        and r.due_at > c.now
      limit 100000
    ) x
  ) s
  union all
  select w.queue_no, w.kind_no, min(w.id), 0, 0, count(*), 0, 0, null, sum(count(*)) over () >= 100000
  from (select x.queue_no, x.kind_no, x.id from rowlock.waiting x limit 100000) w group by w.queue_no, w.kind_no
  union all
  select l.queue_no, l.kind_no, min(l.id), 0, 0, 0, count(*), 0, null, sum(count(*)) over () >= 100000
  from (select x.queue_no, x.kind_no, x.id from rowlock.lease x limit 100000) l group by l.queue_no, l.kind_no
  union all
  select f.queue_no, f.kind_no, min(f.id), 0, 0, 0, 0, count(*), null, sum(count(*)) over () >= 100000
  from (select x.queue_no, x.kind_no, x.id from rowlock.case_file x limit 100000) f group by f.queue_no, f.kind_no
)
select
  coalesce(j.queue, '?') as queue,
  coalesce(j.kind, '?') as kind,
  sum(p.due)::bigint as due,
  sum(p.scheduled)::bigint as scheduled,
  sum(p.waiting)::bigint as waiting,
  sum(p.leased)::bigint as leased,
  sum(p.cases)::bigint as cases,
  -- If one of the other places is not counted to its end, the queues of the remaining jobs are unknown.
  bool_or(p.more) or (select coalesce(bool_or(x.more and x.due + x.scheduled = 0), false) from place x) as more,
  min(p.oldest) as oldest_due_at
from place p left join rowlock.job j on j.id = p.sample
group by 1, 2;

-- Which worker has which job, for how long, and whether the lease is over. A worker that is silent for longer than its
-- lease has lost the lease.
create view rowlock.held as
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
  clock_timestamp() - l.claimed_at as held_for,
  w.beat as last_beat,
  coalesce(w.dead or w.beat < clock_timestamp() - w.lease_ms * interval '1 millisecond', true) as expired
from rowlock.lease l
left join rowlock.worker w on w.id = l.worker
left join rowlock.job j on j.id = l.id;

-- Every job that is not simply waiting to be claimed for the first time: why, which worker has it, since when, how
-- often it was tried, how the last attempt ended, and when it may be tried again.
create view rowlock.stuck as
select
  s.id, j.kind, j.queue, s.state, s.why, s.holder, coalesce(s.since, o.ended_at) as since, s.attempt, s.attempts_max,
  o.error as last_error, s.eligible_at
from (
  select
    h.id, 'leased' as state, case when h.expired then 'its worker is silent' else 'it runs' end as why,
    coalesce(h.worker_name, h.worker::text) as holder, h.claimed_at as since, h.attempt, h.attempts_max,
    null::timestamptz as eligible_at
  from rowlock.held h
  union all
  select r.id, 'ready', 'it was tried', null, null, r.attempt, r.attempts_max, r.due_at
  from rowlock.ready r where r.epoch > 0
  union all
  select
    w.id, 'waiting',
    case
      when w.name is not null then 'it waits for ' || w.name
      when g.paused then 'its group is paused'
      else 'it waits behind job ' || coalesce(g.head::text, '?') || coalesce(', a case: ' || f.reason, '')
    end,
    null, w.since, w.attempt, w.attempts_max, null
  from rowlock.waiting w
  left join rowlock.job_group g on g.no = w.group_no
  left join rowlock.case_file f on f.id = g.head
  union all
  select c.id, 'case', c.reason, c.owner, c.retired_at, c.attempt, c.attempts_max, null
  from rowlock.case_file c
) s
left join rowlock.job j on j.id = s.id
left join lateral (
  select x.error, x.ended_at from rowlock.outcome x where x.id = s.id order by x.epoch desc limit 1
) o on true;

-- External calls that may or may not have happened.
create view rowlock.doubts as
select
  e.no, e.id, j.kind, j.queue, e.name, e.key, e.policy, e.tries, e.begun_at, clock_timestamp() - e.begun_at as in_doubt_for,
  e.error
from rowlock.effect e
left join rowlock.job j on j.id = e.id
where e.state in ('open', 'uncertain') and (e.state = 'uncertain' or not exists (
  select from rowlock.lease l where l.id = e.id and l.epoch = e.epoch and l.worker = e.worker
));

-- Open cases by what they have in common.
create view rowlock.case_errors as
select
  e.no, e.error, count(*) as cases, e.first_seen, e.last_seen, e.seen, min(c.id) as oldest_case, max(c.id) as newest_case
from rowlock.case_file c
join rowlock.case_error e on e.no = c.error_no
group by e.no, e.error, e.first_seen, e.last_seen, e.seen;

-- Dead rows that no transaction sees any more but that still slow down reads, by table.
create view rowlock.dead_rows as
select
  s.relname as table_name, s.n_live_tup as live, s.n_dead_tup as dead, greatest(s.last_vacuum, s.last_autovacuum) as last_vacuum,
  pg_total_relation_size(s.relid) as bytes
from pg_stat_all_tables s
join pg_class c on c.oid = s.relid
where c.relnamespace = (select x.relnamespace from pg_class x where x.oid = 'rowlock.job'::regclass);

-- The transaction that has been open for longest, which keeps dead rows from being removed.
create view rowlock.oldest_transaction as
select
  a.pid, a.datname as database, a.usename as role, a.application_name as application, a.state, a.xact_start as since,
  clock_timestamp() - a.xact_start as open_for, a.query as last_statement
from pg_stat_activity a
where a.xact_start is not null and coalesce(a.backend_xid, a.backend_xmin) is not null
  and a.datname = current_database() and a.pid <> pg_backend_pid()
order by a.xact_start limit 1;
