-- How many jobs a deed was about, and how it was before and after.
alter table rowlock_audit add column jobs integer not null default 1;
alter table rowlock_audit add column before text;
alter table rowlock_audit add column after text;

-- The verbs of people as plain SQL: insert into rowlock_verb (verb, id, actor) values ('cancel', 42, 'ann'). Each does what it
-- says or refuses, and is noted in the audit. `at` is when a delayed job is due, and a job without one is due now; `target` is
-- what is paused or resumed: queue:mail, kind:send-mail or group:account:42. The columns behind it are the library's own.
create view rowlock_verb as
select
  '' as verb, 0 as id, '' as actor, null as at, null as reason, null as target, null as now, null as queue_no, null as kind_no
where 0;

create trigger rowlock_verb_unknown instead of insert on rowlock_verb
when new.verb is null or new.verb not in ('delay', 'run now', 'cancel', 'retire', 'pause', 'resume')
begin
  select raise(abort, 'RL011: unknown verb; the verbs are delay, run now, cancel, retire, pause and resume');
end;

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

create trigger rowlock_verb_cancel instead of insert on rowlock_verb when new.verb = 'cancel'
begin
  select case
    when new.actor is null then raise(abort, 'RL011: the actor is missing; say who does it')
    when not exists (select 1 from rowlock_job j where j.id = new.id) then raise(abort, 'RL010: no such job')
    when exists (select 1 from rowlock_case_file c where c.id = new.id)
      then raise(abort, 'RL011: the job is a case, and cannot be cancelled')
    when not exists (select 1 from rowlock_ready r where r.id = new.id)
      and not exists (select 1 from rowlock_waiting w where w.id = new.id)
      and not exists (select 1 from rowlock_lease l where l.id = new.id)
      then raise(abort, 'RL011: the job is finished, and cannot be cancelled')
  end;
  insert into rowlock_outcome (id, epoch, worker, attempt, outcome, started_at, ended_at, error)
  select
    p.id, p.epoch, p.worker, p.attempt, 'cancelled', coalesce(p.since, coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000)), coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000),
    'cancelled by ' || new.actor || coalesce(': ' || new.reason, '')
  from (
    select r.id, r.epoch + 1 as epoch, 0 as worker, r.attempt, null as since from rowlock_ready r where r.id = new.id
    union all
    select w.id, w.epoch + 1, 0, w.attempt, w.since from rowlock_waiting w where w.id = new.id
    union all
    select l.id, l.epoch, 0, l.attempt, l.claimed_at from rowlock_lease l where l.id = new.id
  ) p;
  insert into rowlock_audit (at, actor, verb, id, detail, before, after)
  values (
    coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000), new.actor, 'cancel', new.id, new.reason,
    case
      when exists (select 1 from rowlock_ready r where r.id = new.id) then 'ready'
      when exists (select 1 from rowlock_waiting w where w.id = new.id) then 'waiting'
      else 'leased'
    end, 'finished'
  );
  delete from rowlock_ready where id = new.id;
  delete from rowlock_waiting where id = new.id;
  delete from rowlock_lease where id = new.id;
  update rowlock_job_group
  set head = (select min(w.id) from rowlock_waiting w where w.group_no = rowlock_job_group.no and rowlock_job_group.paused = 0)
  where no = (select j.group_no from rowlock_job j where j.id = new.id) and head = new.id;
  insert into rowlock_ready (id, queue_no, kind_no, alone, priority, due_at, epoch, attempt, attempts_max)
  select w.id, w.queue_no, w.kind_no, w.alone, w.priority, max(w.due_at, coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000)), w.epoch, w.attempt, w.attempts_max
  from rowlock_job j
  join rowlock_job_group g on g.no = j.group_no
  join rowlock_waiting w on w.id = g.head
  where j.id = new.id;
  delete from rowlock_waiting where id = (
    select g.head from rowlock_job j join rowlock_job_group g on g.no = j.group_no where j.id = new.id
  );
  delete from rowlock_job_group
  where no = (select j.group_no from rowlock_job j where j.id = new.id) and head is null and paused = 0;
end;

create trigger rowlock_verb_retire instead of insert on rowlock_verb when new.verb = 'retire'
begin
  select case
    when new.actor is null then raise(abort, 'RL011: the actor is missing; say who does it')
    when not exists (select 1 from rowlock_job j where j.id = new.id) then raise(abort, 'RL010: no such job')
    when exists (select 1 from rowlock_case_file c where c.id = new.id)
      then raise(abort, 'RL011: the job is a case, and cannot be retired')
    when not exists (select 1 from rowlock_ready r where r.id = new.id)
      and not exists (select 1 from rowlock_waiting w where w.id = new.id)
      and not exists (select 1 from rowlock_lease l where l.id = new.id)
      then raise(abort, 'RL011: the job is finished, and cannot be retired')
  end;
  insert into rowlock_outcome (id, epoch, worker, attempt, outcome, started_at, ended_at, error)
  select
    p.id, p.epoch, 0, p.attempt, 'retired', coalesce(p.since, coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000)), coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000),
    'retired by ' || new.actor || coalesce(': ' || new.reason, '')
  from (
    select r.id, r.epoch + 1 as epoch, r.attempt, null as since from rowlock_ready r where r.id = new.id
    union all
    select w.id, w.epoch + 1, w.attempt, null from rowlock_waiting w where w.id = new.id
    union all
    select l.id, l.epoch, l.attempt, l.claimed_at from rowlock_lease l where l.id = new.id
  ) p;
  insert into rowlock_audit (at, actor, verb, id, detail, before, after)
  values (
    coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000), new.actor, 'retire', new.id, new.reason,
    case
      when exists (select 1 from rowlock_ready r where r.id = new.id) then 'ready'
      when exists (select 1 from rowlock_waiting w where w.id = new.id) then 'waiting'
      else 'leased'
    end, 'case'
  );
  insert into rowlock_case_file (id, epoch, attempt, attempts_max, queue_no, kind_no, priority, reason, retired_at, history)
  select
    p.id, p.epoch, p.attempt, p.attempts_max, p.queue_no, p.kind_no, p.priority,
    'retired by ' || new.actor || coalesce(': ' || new.reason, ''), coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000),
    (
      select json_group_array(json_object(
        'epoch', o.epoch, 'attempt', o.attempt, 'outcome', o.outcome, 'worker', o.worker,
        'started_at', strftime('%Y-%m-%dT%H:%M:%S', o.started_at / 1000000, 'unixepoch') || printf('.%06dZ', o.started_at % 1000000),
        'ended_at', strftime('%Y-%m-%dT%H:%M:%S', o.ended_at / 1000000, 'unixepoch') || printf('.%06dZ', o.ended_at % 1000000),
        'error', o.error))
      from (
        select x.epoch, x.attempt, x.outcome, x.worker, x.started_at, x.ended_at, x.error
        from rowlock_outcome x where x.id = new.id order by x.epoch
      ) o
    )
  from (
    select r.id, r.epoch + 1 as epoch, r.attempt, r.attempts_max, r.queue_no, r.kind_no, r.priority from rowlock_ready r where r.id = new.id
    union all
    select w.id, w.epoch + 1, w.attempt, w.attempts_max, w.queue_no, w.kind_no, w.priority from rowlock_waiting w where w.id = new.id
    union all
    select l.id, l.epoch, l.attempt, l.attempts_max, l.queue_no, l.kind_no, l.priority from rowlock_lease l where l.id = new.id
  ) p;
  delete from rowlock_ready where id = new.id;
  delete from rowlock_waiting where id = new.id;
  delete from rowlock_lease where id = new.id;
  insert into rowlock_job (uid, kind, version, queue, priority, attempts_max, payload, tags, chain, position, trace, created_at)
  select
    j.if_retired ->> 'uid', j.if_retired ->> 'kind', j.if_retired ->> 'version', j.if_retired ->> 'queue',
    j.if_retired ->> 'priority', j.if_retired ->> 'attempts_max', j.if_retired -> 'payload',
    nullif(j.if_retired -> 'tags', 'null'), coalesce(j.chain, j.id), j.position + 1, j.trace, coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000)
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
    x.id, j.if_retired ->> 'queue_no', j.if_retired ->> 'kind_no', 0, x.priority, coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000), 0, 0, x.attempts_max
  from rowlock_job j
  join rowlock_job x on x.chain = coalesce(j.chain, j.id) and x.position = j.position + 1 and x.uid = j.if_retired ->> 'uid'
  -- It was enqueued just now, and stands nowhere yet.
  where j.id = new.id and json_valid(j.if_retired)
    and x.id = (select max(n.id) from rowlock_job n)
    and not exists (select 1 from rowlock_ready r where r.id = x.id)
    and not exists (select 1 from rowlock_lease l where l.id = x.id)
    and not exists (select 1 from rowlock_waiting w where w.id = x.id)
    and not exists (select 1 from rowlock_case_file c where c.id = x.id)
    and not exists (select 1 from rowlock_outcome o where o.id = x.id);
  update rowlock_job_group
  set head = (select min(w.id) from rowlock_waiting w where w.group_no = rowlock_job_group.no and rowlock_job_group.paused = 0)
  where no = (select j.group_no from rowlock_job j where j.id = new.id and coalesce(j.group_stops, 0) = 0) and head = new.id;
  insert into rowlock_ready (id, queue_no, kind_no, alone, priority, due_at, epoch, attempt, attempts_max)
  select w.id, w.queue_no, w.kind_no, w.alone, w.priority, max(w.due_at, coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000)), w.epoch, w.attempt, w.attempts_max
  from rowlock_job j
  join rowlock_job_group g on g.no = j.group_no
  join rowlock_waiting w on w.id = g.head
  where j.id = new.id;
  delete from rowlock_waiting where id = (
    select g.head from rowlock_job j join rowlock_job_group g on g.no = j.group_no where j.id = new.id
  );
  delete from rowlock_job_group
  where no = (select j.group_no from rowlock_job j where j.id = new.id) and head is null and paused = 0;
end;

-- Nothing happens where it was paused before. A group is known by its jobs, but for the library, which gives its number.
create trigger rowlock_verb_pause instead of insert on rowlock_verb when new.verb = 'pause'
begin
  select case
    when new.actor is null then raise(abort, 'RL011: the actor is missing; say who does it')
    when new.target is null or not (new.target glob 'queue:?*' or new.target glob 'kind:?*' or new.target glob 'group:?*')
      then raise(abort, 'RL012: not a valid target; use queue:NAME, kind:NAME or group:NAME')
    when new.target glob 'group:*' and new.id is null
      and not exists (select 1 from rowlock_job j where j.in_group = substr(new.target, 7))
      then raise(abort, 'RL010: no job is in this group')
  end;
  insert into rowlock_audit (at, actor, verb, id, detail)
  select coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000), new.actor, 'pause', 0, new.target
  where not exists (select 1 from rowlock_setting s where s.name = 'pause:' || new.target);
  insert or ignore into rowlock_setting (name, value, changed_at, changed_by)
  values ('pause:' || new.target, '', coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000), new.actor);
  insert or ignore into rowlock_job_group (no, head, paused)
  select coalesce((select max(j.group_no) from rowlock_job j where j.in_group = substr(new.target, 7)), new.id), null, 1
  where new.target glob 'group:*';
  update rowlock_job_group set paused = 1
  where new.target glob 'group:*'
    and no = coalesce((select max(j.group_no) from rowlock_job j where j.in_group = substr(new.target, 7)), new.id);
  insert into rowlock_waiting (
    id, queue_no, kind_no, alone, priority, due_at, epoch, attempt, attempts_max, limit_ends, since, group_no
  )
  select
    r.id, r.queue_no, r.kind_no, r.alone, r.priority, r.due_at, r.epoch, r.attempt, r.attempts_max, 'cancelled', coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000), g.no
  from rowlock_job_group g join rowlock_ready r on r.id = g.head
  where new.target glob 'group:*'
    and g.no = coalesce((select max(j.group_no) from rowlock_job j where j.in_group = substr(new.target, 7)), new.id);
  delete from rowlock_ready where id in (
    select g.head from rowlock_job_group g join rowlock_waiting w on w.id = g.head
    where new.target glob 'group:*'
      and g.no = coalesce((select max(j.group_no) from rowlock_job j where j.in_group = substr(new.target, 7)), new.id)
  );
  update rowlock_job_group set head = null
  where new.target glob 'group:*'
    and no = coalesce((select max(j.group_no) from rowlock_job j where j.in_group = substr(new.target, 7)), new.id)
    and exists (select 1 from rowlock_waiting w where w.id = head);
end;

-- Nothing happens where it was not paused.
create trigger rowlock_verb_resume instead of insert on rowlock_verb when new.verb = 'resume'
begin
  select case
    when new.actor is null then raise(abort, 'RL011: the actor is missing; say who does it')
    when new.target is null or not (new.target glob 'queue:?*' or new.target glob 'kind:?*' or new.target glob 'group:?*')
      then raise(abort, 'RL012: not a valid target; use queue:NAME, kind:NAME or group:NAME')
    when new.target glob 'group:*' and new.id is null
      and not exists (select 1 from rowlock_job j where j.in_group = substr(new.target, 7))
      then raise(abort, 'RL010: no job is in this group')
  end;
  insert into rowlock_audit (at, actor, verb, id, detail)
  select coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000), new.actor, 'resume', 0, new.target
  where exists (select 1 from rowlock_setting s where s.name = 'pause:' || new.target);
  delete from rowlock_setting where name = 'pause:' || new.target;
  update rowlock_job_group
  set
    paused = 0,
    head = coalesce(head, (select min(w.id) from rowlock_waiting w where w.group_no = rowlock_job_group.no))
  where new.target glob 'group:*'
    and no = coalesce((select max(j.group_no) from rowlock_job j where j.in_group = substr(new.target, 7)), new.id);
  insert into rowlock_ready (id, queue_no, kind_no, alone, priority, due_at, epoch, attempt, attempts_max)
  select w.id, w.queue_no, w.kind_no, w.alone, w.priority, max(w.due_at, coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000)), w.epoch, w.attempt, w.attempts_max
  from rowlock_job_group g join rowlock_waiting w on w.id = g.head
  where new.target glob 'group:*'
    and g.no = coalesce((select max(j.group_no) from rowlock_job j where j.in_group = substr(new.target, 7)), new.id);
  delete from rowlock_waiting where id = (
    select g.head from rowlock_job_group g
    where new.target glob 'group:*'
      and g.no = coalesce((select max(j.group_no) from rowlock_job j where j.in_group = substr(new.target, 7)), new.id)
  );
  delete from rowlock_job_group
  where new.target glob 'group:*'
    and no = coalesce((select max(j.group_no) from rowlock_job j where j.in_group = substr(new.target, 7)), new.id)
    and head is null;
end;
