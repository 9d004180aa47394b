-- Operator commands for cases, as plain SQL.

-- Reopens a case with all its attempts. The job goes to ready, or to waiting if its name is not completed or if it must
-- wait for its turn in its group. The epoch keeps rising, so no old token fits again.
drop trigger if exists rowlock_verb_reopen;
create trigger rowlock_verb_reopen instead of insert on rowlock_verb when new.verb = 'reopen'
begin
  select case
    when new.actor is null then raise(abort, 'RL011: the actor is missing; say who does it')
    when not exists (select 1 from rowlock_case_file c where c.id = new.id) then case
      when not exists (select 1 from rowlock_job j where j.id = new.id) then raise(abort, 'RL010: no such job')
      else raise(abort, 'RL011: the job is not a case')
    end
  end;
  insert or ignore into rowlock_job_group (no, head)
  select j.group_no, j.id from rowlock_job j where j.id = new.id and j.group_no is not null;
  -- The head of a group that the case has stopped still has its turn, unless the group is paused.
  update rowlock_job_group set head = null
  where no = (select j.group_no from rowlock_job j where j.id = new.id) and head = new.id and paused = 1;
  insert into rowlock_ready (id, queue_no, kind_no, alone, priority, due_at, epoch, attempt, attempts_max)
  select f.id, f.queue_no, f.kind_no, 0, f.priority, coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000), f.epoch, 0, f.attempts_max
  from rowlock_case_file f left join rowlock_job j on j.id = f.id
  where f.id = new.id
    and (j.waits_for is null or exists (select 1 from rowlock_completion c where c.name = j.waits_for))
    and (j.group_no is null or f.id = (select g.head from rowlock_job_group g where g.no = j.group_no));
  insert into rowlock_waiting (
    id, name, queue_no, kind_no, priority, due_at, epoch, attempt, attempts_max, limit_at, limit_ends, since, group_no
  )
  select
    f.id, case when j.group_no is null then j.waits_for end, f.queue_no, f.kind_no, f.priority, coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000), f.epoch, 0, f.attempts_max,
    case when j.group_no is null then j.expires_at end, 'cancelled', coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000), j.group_no
  from rowlock_case_file f join rowlock_job j on j.id = f.id
  where f.id = new.id and not exists (select 1 from rowlock_ready r where r.id = f.id);
  delete from rowlock_case_file where id = new.id;
  insert into rowlock_audit (at, actor, verb, id, before, after)
  select
    coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000), new.actor, 'reopen', new.id, 'case',
    case when exists (select 1 from rowlock_ready r where r.id = new.id) then 'ready' else 'waiting' end;
end;
