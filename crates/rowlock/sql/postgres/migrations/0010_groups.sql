-- The group a job is in, and whether the group stops when the job is retired.
alter table rowlock.job add column in_group text, add column group_no bigint, add column group_stops boolean;

-- The jobs of one group, for people.
create index job_in_group on rowlock.job (in_group, id) where in_group is not null;

-- Waits for a name, or behind the head of its group.
alter table rowlock.waiting
  alter column name drop not null,
  add column group_no bigint,
  add column alone boolean not null default false,
  add constraint waiting_one check ((name is null) <> (group_no is null));

-- The next of a group is the smallest.
create index waiting_group on rowlock.waiting (group_no, id) where group_no is not null;

-- One row per group that has a job: the job whose turn it is, which stands in ready, in lease, or in a case that stops the
-- group; every other job of it is in waiting. Vacant until the sweep has filled or removed it.
create table rowlock.job_group (
  no bigint primary key,
  head bigint,
  paused boolean not null default false,
  vacant boolean not null generated always as (head is null) stored
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);

-- What the sweep looks for.
-- By a column of its own, so that a turn that is passed on changes nothing in any index.
create index job_group_vacant on rowlock.job_group (no) where vacant and not paused;
create index job_group_paused on rowlock.job_group (no) where paused;

-- Passes the turn of groups on: where a group's head is still the one given, the job behind it with the smallest id is moved
-- to ready and is its head now; without one the group is vacant. In the commit that ends the head, or later from the sweep.
-- Two statements on purpose: the second one's snapshot must be newer than the locks the first one waited for. A function,
-- so that its plans are made apart from the settings of the user's session. It says which queues got work.
create function rowlock.pass_turns(groups bigint[], heads bigint[], at timestamptz) returns bigint[]
language plpgsql security invoker
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan
as $body$
declare
  turns bigint[];
  queues bigint[];
begin
  select array_agg(held.no) into turns
  from (
    select g.no
    from unnest(groups, heads) as u (no, head) join rowlock.job_group g on g.no = u.no
    where g.head is not distinct from u.head
    order by g.no
    for no key update of g
  ) held;
  with next as materialized (
    select g.no, w.id
    from unnest(turns) as t (no)
    join rowlock.job_group g on g.no = t.no
    -- From the group's first on and no further, whatever the statistics say of a group that is large.
    left join lateral (
      select x.id, x.group_no from rowlock.waiting x
      where x.group_no is not null and (x.group_no, x.id) > (g.no, 0)
      order by x.group_no, x.id limit 1
    ) w on w.group_no = g.no and not g.paused
  ), gone as (
    delete from rowlock.waiting w using next n where w.id = any (array[n.id])
    returning
      w.id, w.queue_no, w.kind_no, w.alone, w.priority, greatest(w.due_at, coalesce(at, clock_timestamp())) as due_at,
      w.epoch, w.attempt, w.attempts_max
  ), place as (
    insert into rowlock.ready (queue_no, kind_no, alone, priority, due_at, id, epoch, attempt, attempts_max)
    select queue_no, kind_no, alone, priority, due_at, id, epoch, attempt, attempts_max from gone
  ), passed as (
    update rowlock.job_group g set head = d.id
    from next n left join gone d on d.id = n.id
    where g.no = any (array[n.no]) and g.head is distinct from d.id
  )
  select array_agg(distinct queue_no) into queues from gone;
  return queues;
end
$body$;

revoke all on function rowlock.pass_turns(bigint[], bigint[], timestamptz) from public;

-- Every job with its state, owner, attempts, last error and next due time.
create or replace view rowlock.jobs as
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
