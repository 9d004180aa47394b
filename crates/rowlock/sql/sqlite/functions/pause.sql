-- Operator commands that pause and resume, as plain SQL.

-- Nothing happens if the target is already paused. A group is identified by its jobs; the library gives the group's
-- number instead.
drop trigger if exists rowlock_verb_pause;
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

-- Nothing happens if the target is not paused.
drop trigger if exists rowlock_verb_resume;
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
