-- Groups: which job has the turn, and which jobs join.

-- Moves jobs from waiting to ready, due no earlier than now. It says which queues got work, one entry per job.
create or replace function rowlock.end_waits(jobs bigint[], at timestamptz) returns bigint[]
language plpgsql security invoker
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan
as $body$
declare
  queues bigint[];
begin
  with gone as (
    delete from rowlock.waiting w using unnest(jobs) as j (id) where w.id = any (array[j.id])
    returning
      w.queue_no, w.kind_no, w.alone, w.priority, greatest(w.due_at, coalesce(at, clock_timestamp())) as due_at, w.id, w.epoch, w.attempt,
      w.attempts_max
  ), place as (
    insert into rowlock.ready (queue_no, kind_no, alone, priority, due_at, id, epoch, attempt, attempts_max)
    select queue_no, kind_no, alone, priority, due_at, id, epoch, attempt, attempts_max from gone
  )
  select array_agg(queue_no) into queues from gone;
  return queues;
end
$body$;

-- Passes the turn of groups on. If a group's head is still the given one, the job behind it with the smallest id moves
-- to ready and becomes the head. Without such a job the group is vacant.
-- It runs in the commit that ends the head, or later in the sweep. The locks are taken in a separate statement: the
-- next read must be newer than the locks that were waited for.
-- It is a function so that its plans do not depend on the settings of the user's session. It says which queues got
-- work.
create or replace function rowlock.pass_turns(groups bigint[], heads bigint[], at timestamptz) returns bigint[]
language plpgsql security invoker
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan
as $body$
declare
  turns bigint[];
  next bigint[];
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
  -- Reads the group's first row and no further, even if the statistics say that the group is large.
  select array_agg(g.no), array_agg(w.id) into turns, next
  from unnest(turns) as t (no)
  join rowlock.job_group g on g.no = t.no
  left join lateral (
    select x.id, x.group_no from rowlock.waiting x
    where x.group_no is not null and (x.group_no, x.id) > (g.no, 0)
    order by x.group_no, x.id limit 1
  ) w on w.group_no = g.no and not g.paused;
  queues := rowlock.end_waits(next, at);
  -- Another transaction may have taken the job away meanwhile. Then the group is vacant.
  update rowlock.job_group g set head = r.id
  from unnest(turns, next) as n (no, id) left join rowlock.ready r on r.id = n.id
  where g.no = any (array[n.no]) and g.head is distinct from r.id;
  return queues;
end
$body$;

-- Moves the heads of paused groups, or of one group, from ready back to waiting. A head that is leased goes on. Locked
-- rows are left to the next round.
create or replace function rowlock.withdraw(most int, turn bigint, at timestamptz) returns void
language plpgsql security invoker
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan
as $body$
begin
  with due as materialized (
    select g.no, r.id
    from rowlock.job_group g join rowlock.ready r on r.id = g.head
    where g.paused and (turn is null or g.no = turn)
    limit most
    for no key update of g skip locked
    for update of r skip locked
  ), gone as (
    delete from rowlock.ready r using due d where r.id = any (array[d.id])
    returning d.no, r.id, r.queue_no, r.kind_no, r.alone, r.priority, r.due_at, r.epoch, r.attempt, r.attempts_max
  ), behind as (
    insert into rowlock.waiting (
      id, queue_no, kind_no, alone, priority, due_at, epoch, attempt, attempts_max, limit_ends, since, group_no
    )
    select
      id, queue_no, kind_no, alone, priority, due_at, epoch, attempt, attempts_max, 'cancelled', coalesce(at, clock_timestamp()), no
    from gone
  )
  update rowlock.job_group g set head = null from gone d where g.no = any (array[d.no]);
end
$body$;

-- Adds a new job to its group, and keeps the group from being removed until the transaction ends. It says whether the
-- job has the turn.
create or replace function rowlock.enter_group(turn bigint, job bigint) returns boolean
language plpgsql security invoker set search_path = pg_catalog, pg_temp
set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $body$
declare
  vacant boolean;
begin
  for round in 1..20 loop
    select g.vacant and not g.paused into vacant from rowlock.job_group g where g.no = turn for key share;
    if not found then
      insert into rowlock.job_group (no, head) values (turn, job) on conflict (no) do nothing;
      if found then
        return true;
      end if;
      continue;
    end if;
    if not vacant then
      return false;
    end if;
    begin
      perform from rowlock.job_group g
      where g.no = turn and g.vacant and not g.paused and not exists (select from rowlock.waiting w where w.group_no = turn)
      for no key update of g skip locked;
      if found then
        update rowlock.job_group g set head = job where g.no = turn;
        return true;
      end if;
      -- Releases the lock of a group that is not taken: a transaction that passes the turn on must not wait for this
      -- one.
      raise exception 'not vacant' using errcode = 'RL099';
    exception
      when sqlstate 'RL099' then
        return false;
    end;
  end loop;
  raise exception 'the group keeps changing; try again' using errcode = '40001';
end
$body$;

revoke all on function rowlock.end_waits, rowlock.pass_turns, rowlock.withdraw, rowlock.enter_group from public;
