-- The numbers that names have in the narrow tables, of every queue and kind that a worker has ever served: SQLite cannot work
-- them out by itself.
create table rowlock_name (
  no integer primary key,
  name text not null
) strict;

-- One verb more.
drop trigger rowlock_verb_unknown;
create trigger rowlock_verb_unknown instead of insert on rowlock_verb
when new.verb is null or new.verb not in ('delay', 'run now', 'cancel', 'retire', 'pause', 'resume', 'close', 'reopen', 'rerun')
begin
  select raise(abort, 'RL011: unknown verb; the verbs are delay, run now, cancel, retire, pause, resume, close, reopen and rerun');
end;

-- Runs a finished job once more, with all its attempts, under its own uid and a new epoch: by way of a case that nobody ever
-- sees, because reopening knows every place that a job may have to wait in.
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
