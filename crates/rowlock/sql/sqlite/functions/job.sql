-- Operator commands for jobs, as plain SQL. Each command is recorded in the audit.

drop trigger if exists rowlock_verb_unknown;
create trigger rowlock_verb_unknown instead of insert on rowlock_verb
when new.verb is null or new.verb not in ('delay', 'run now', 'cancel', 'retire', 'pause', 'resume', 'close', 'reopen', 'rerun')
begin
  select raise(abort, 'RL011: unknown verb; the verbs are delay, run now, cancel, retire, pause, resume, close, reopen and rerun');
end;

drop trigger if exists rowlock_verb_delay;
create trigger rowlock_verb_delay instead of insert on rowlock_verb when new.verb in ('delay', 'run now')
begin
  select case
    when new.actor is null then raise(abort, 'RL011: the actor is missing; say who does it')
    when not exists (select 1 from rowlock_job j where j.id = new.id) then raise(abort, 'RL010: no such job')
    when not exists (select 1 from rowlock_ready r where r.id = new.id)
      and not exists (select 1 from rowlock_waiting w where w.id = new.id)
      then raise(abort, 'RL011: the job is leased, a case or finished, and cannot be delayed')
    when new.verb = 'delay' and new.at is null then raise(abort, 'RL011: the time is missing; say until when')
  end;
  insert into rowlock_audit (at, actor, verb, id, detail, before, after)
  select
    coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000), new.actor, new.verb, p.id, p.place, p.due_at,
    max(case new.verb when 'delay' then min(new.at, 253370678400000000) else 0 end, coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000))
  from (
    select r.id, 'ready' as place, r.due_at from rowlock_ready r where r.id = new.id
    union all
    select w.id, 'waiting', w.due_at from rowlock_waiting w where w.id = new.id
  ) p;
  update rowlock_ready set due_at = max(case new.verb when 'delay' then min(new.at, 253370678400000000) else 0 end, coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000))
  where id = new.id;
  update rowlock_waiting set due_at = max(case new.verb when 'delay' then min(new.at, 253370678400000000) else 0 end, coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000))
  where id = new.id;
end;

-- Ends a job for an operator, from whatever place it is in, through a lease of worker 0. So the job ends like every
-- attempt. If the job is running, worker 0 takes over the lease: the attempt did not end by itself, and must not
-- mistake this outcome for its own commit.
drop trigger if exists rowlock_verb_end;
create trigger rowlock_verb_end instead of insert on rowlock_verb when new.verb in ('cancel', 'retire', 'close')
begin
  select case
    when new.actor is null then raise(abort, 'RL011: the actor is missing; say who does it')
    when not exists (select 1 from rowlock_job j where j.id = new.id) then raise(abort, 'RL010: no such job')
    when new.verb = 'close' then case
      when not exists (select 1 from rowlock_case_file c where c.id = new.id) then raise(abort, 'RL011: the job is not a case')
    end
    when exists (select 1 from rowlock_case_file c where c.id = new.id) then case new.verb
      when 'cancel' then raise(abort, 'RL011: the job is a case, and cannot be cancelled')
      else raise(abort, 'RL011: the job is a case, and cannot be retired')
    end
    when not exists (select 1 from rowlock_ready r where r.id = new.id)
      and not exists (select 1 from rowlock_waiting w where w.id = new.id)
      and not exists (select 1 from rowlock_lease l where l.id = new.id)
    then case new.verb
      when 'cancel' then raise(abort, 'RL011: the job is finished, and cannot be cancelled')
      else raise(abort, 'RL011: the job is finished, and cannot be retired')
    end
  end;
  insert into rowlock_by_hand (id, verb, outcome, said, reason, actor, now)
  values (
    new.id, new.verb, case new.verb when 'retire' then 'retired' else 'cancelled' end,
    case new.verb when 'retire' then 'retired' when 'close' then 'closed' else 'cancelled' end || ' by ' || new.actor
      || coalesce(': ' || new.reason, ''),
    new.reason, new.actor, coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000)
  );
end;

drop trigger if exists rowlock_end_by_hand;
create trigger rowlock_end_by_hand instead of insert on rowlock_by_hand
begin
  insert into rowlock_audit (at, actor, verb, id, detail, before, after)
  values (
    new.now, new.actor, new.verb, new.id, new.reason,
    case
      when exists (select 1 from rowlock_ready r where r.id = new.id) then 'ready'
      when exists (select 1 from rowlock_waiting w where w.id = new.id) then 'waiting'
      when exists (select 1 from rowlock_case_file c where c.id = new.id) then 'case'
      else 'leased'
    end,
    case new.outcome when 'retired' then 'case' else 'finished' end
  );
  update rowlock_lease set worker = 0 where id = new.id;
  insert into rowlock_lease (id, epoch, worker, attempt, attempts_max, queue_no, kind_no, alone, priority, claimed_at)
  select r.id, r.epoch + 1, 0, r.attempt, r.attempts_max, r.queue_no, r.kind_no, 0, r.priority, new.now
  from rowlock_ready r where r.id = new.id
  union all
  select
    w.id, w.epoch + 1, 0, w.attempt, w.attempts_max, w.queue_no, w.kind_no, 0, w.priority,
    case new.verb when 'cancel' then w.since else new.now end
  from rowlock_waiting w where w.id = new.id
  union all
  select c.id, c.epoch + 1, 0, c.attempt, c.attempts_max, c.queue_no, c.kind_no, 0, c.priority, new.now
  from rowlock_case_file c where c.id = new.id;
  delete from rowlock_ready where id = new.id;
  delete from rowlock_waiting where id = new.id;
  delete from rowlock_case_file where id = new.id;
  insert into rowlock_end (id, outcome, place, delay_us, error, now)
  values (new.id, new.outcome, case new.outcome when 'retired' then 'case' else 'finished' end, 0, new.said, new.now);
  insert into rowlock_job (uid, kind, version, queue, priority, attempts_max, payload, tags, chain, position, trace, created_at)
  select
    j.if_retired ->> 'uid', j.if_retired ->> 'kind', j.if_retired ->> 'version', j.if_retired ->> 'queue',
    j.if_retired ->> 'priority', j.if_retired ->> 'attempts_max', j.if_retired ->> 'payload',
    j.if_retired ->> 'tags', coalesce(j.chain, j.id), j.position + 1, j.trace, new.now
  from rowlock_job j join rowlock_case_file c on c.id = j.id
  where j.id = new.id and json_valid(j.if_retired) and j.was_done is not 1
    and not exists (
      select 1 from rowlock_effect e
      where e.id = j.id and e.policy = 'park' and (e.state in ('open', 'uncertain') or (
        e.resolved_by is not null
        and e.ended_at >= (select o.started_at from rowlock_outcome o where o.id = c.id and o.epoch = c.epoch)
      ))
    )
    and not exists (
      select 1 from rowlock_job x
      where x.chain = coalesce(j.chain, j.id) and x.position = j.position + 1 and x.uid = j.if_retired ->> 'uid'
    );
  insert into rowlock_ready (id, queue_no, kind_no, alone, priority, due_at, epoch, attempt, attempts_max)
  select
    x.id, j.if_retired ->> 'queue_no', j.if_retired ->> 'kind_no', 0, x.priority, new.now, 0, 0, x.attempts_max
  from rowlock_job j
  join rowlock_job x on x.chain = coalesce(j.chain, j.id) and x.position = j.position + 1 and x.uid = j.if_retired ->> 'uid'
  -- The job was just enqueued, and is in no place yet.
  where j.id = new.id and json_valid(j.if_retired)
    and x.id = (select max(n.id) from rowlock_job n)
    and not exists (select 1 from rowlock_ready r where r.id = x.id)
    and not exists (select 1 from rowlock_lease l where l.id = x.id)
    and not exists (select 1 from rowlock_waiting w where w.id = x.id)
    and not exists (select 1 from rowlock_case_file c where c.id = x.id)
    and not exists (select 1 from rowlock_outcome o where o.id = x.id);
  insert into rowlock_turn (no, head, now)
  select j.group_no, j.id, new.now from rowlock_job j
  where j.id = new.id and j.group_no is not null and not (new.outcome = 'retired' and coalesce(j.group_stops, 0) = 1);
end;

-- Runs a finished job once more, with all its attempts, under its own uid and a new epoch. It uses a temporary case
-- that no reader ever sees, because reopening handles every place that a job may have to wait in.
drop trigger if exists rowlock_verb_rerun;
create trigger rowlock_verb_rerun instead of insert on rowlock_verb when new.verb = 'rerun'
begin
  select case
    when new.actor is null then raise(abort, 'RL011: the actor is missing; say who does it')
    when not exists (select 1 from rowlock_job j where j.id = new.id) then raise(abort, 'RL010: no such job')
    when exists (select 1 from rowlock_ready r where r.id = new.id)
      or exists (select 1 from rowlock_waiting w where w.id = new.id)
      or exists (select 1 from rowlock_lease l where l.id = new.id)
      or exists (select 1 from rowlock_case_file c where c.id = new.id)
      then raise(abort, 'RL011: the job is not finished, and cannot be re-run')
    when not exists (
      select 1 from rowlock_outcome o
      where o.id = new.id and o.outcome in ('done', 'cancelled')
        and o.epoch = (select max(x.epoch) from rowlock_outcome x where x.id = new.id)
    ) then raise(abort, 'RL011: the history of the job was removed, and it cannot be re-run')
    when exists (select 1 from rowlock_job j where j.id = new.id and j.expires_at <= coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000))
      then raise(abort, 'RL011: the job has expired, and cannot be re-run')
    when new.queue_no is null and not exists (
      select 1 from rowlock_job j
      join rowlock_name q on q.name = j.queue
      join rowlock_name k on k.name = j.kind || '@' || j.version
      where j.id = new.id
    ) then raise(abort, 'RL011: no worker has served the queue and kind of the job yet; use the command line')
  end;
  insert into rowlock_case_file (id, epoch, attempt, attempts_max, queue_no, kind_no, priority, reason, retired_at, history)
  select
    j.id, o.epoch, 0, j.attempts_max,
    coalesce(new.queue_no, (select max(n.no) from rowlock_name n where n.name = j.queue)),
    coalesce(new.kind_no, (select max(n.no) from rowlock_name n where n.name = j.kind || '@' || j.version)),
    j.priority, o.outcome, coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000), '[]'
  from rowlock_job j
  join rowlock_outcome o on o.id = j.id and o.epoch = (select max(x.epoch) from rowlock_outcome x where x.id = j.id)
  where j.id = new.id;
  update rowlock_job set
    reran_at = coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000),
    was_done = case
      when exists (select 1 from rowlock_outcome o where o.id = new.id and o.outcome = 'done') then 1
      else was_done
    end
  where id = new.id;
  insert into rowlock_verb (verb, id, actor, now) values ('reopen', new.id, new.actor, coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000));
  update rowlock_audit
  set
    verb = 'rerun', detail = new.reason,
    before = (select o.outcome from rowlock_outcome o where o.id = new.id order by o.epoch desc limit 1)
  where no = (select max(a.no) from rowlock_audit a where a.id = new.id and a.verb = 'reopen');
end;
