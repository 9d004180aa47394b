-- Ending leases and passing turns: shared by the library and the operator commands in plain SQL.

-- Ends a lease, for every caller. It writes the outcome, and puts the job back to ready or creates a case with its
-- history. The caller that inserts the row has checked that the token holds.
drop trigger if exists rowlock_end_lease;
create trigger rowlock_end_lease instead of insert on rowlock_end
begin
  insert into rowlock_outcome (id, epoch, worker, attempt, outcome, started_at, ended_at, error, result)
  select l.id, l.epoch, l.worker, l.attempt, new.outcome, l.claimed_at, new.now, new.error, new.result
  from rowlock_lease l where l.id = new.id;
  insert into rowlock_ready (id, queue_no, kind_no, alone, priority, due_at, epoch, attempt, attempts_max)
  select
    l.id, l.queue_no, l.kind_no, new.outcome = 'lost' or (l.alone and new.outcome = 'released'), l.priority,
    new.now + new.delay_us, l.epoch, l.attempt - (new.outcome in ('deferred', 'released')), l.attempts_max
  from rowlock_lease l where new.place = 'ready' and l.id = new.id;
  insert into rowlock_case_file (id, epoch, attempt, attempts_max, queue_no, kind_no, priority, reason, retired_at, history)
  select
    l.id, l.epoch, l.attempt, l.attempts_max, l.queue_no, l.kind_no, l.priority, coalesce(new.error, new.outcome), new.now,
    -- Keeps the first and the last fifty attempts. The first attempt after the gap stores how many are left out.
    (
      select json_group_array(json_patch(
        json_object(
          'epoch', o.epoch, 'attempt', o.attempt, 'outcome', o.outcome, 'worker', o.worker,
          'started_at', strftime('%Y-%m-%dT%H:%M:%S', o.started_at / 1000000, 'unixepoch') || printf('.%06dZ', o.started_at % 1000000),
          'ended_at', strftime('%Y-%m-%dT%H:%M:%S', o.ended_at / 1000000, 'unixepoch') || printf('.%06dZ', o.ended_at % 1000000),
          'error', o.error),
        json_object('left_out', case when o.no = o.ends - 49 and o.ends > 100 then o.ends - 100 end)))
      from (
        select x.*, row_number() over (order by x.epoch) as no, count(*) over () as ends
        from rowlock_outcome x where x.id = new.id order by x.epoch
      ) o
      where o.no <= 50 or o.no > o.ends - 50
    )
  from rowlock_lease l where new.place = 'case' and l.id = new.id;
  delete from rowlock_lease where id = new.id;
end;

-- Passes the turn of a group on, if its head is still the given one: to the job with the smallest id behind it, or to
-- none. A group without jobs is removed.
drop trigger if exists rowlock_pass_turn;
create trigger rowlock_pass_turn instead of insert on rowlock_turn
begin
  update rowlock_job_group
  set head = (select min(w.id) from rowlock_waiting w where w.group_no = new.no and rowlock_job_group.paused = 0)
  where no = new.no and head is new.head;
  insert into rowlock_ready (id, queue_no, kind_no, alone, priority, due_at, epoch, attempt, attempts_max)
  select w.id, w.queue_no, w.kind_no, w.alone, w.priority, max(w.due_at, new.now), w.epoch, w.attempt, w.attempts_max
  from rowlock_job_group g join rowlock_waiting w on w.id = g.head
  where g.no = new.no;
  delete from rowlock_waiting where id = (select g.head from rowlock_job_group g where g.no = new.no);
  delete from rowlock_job_group where no = new.no and head is null and paused = 0;
end;
