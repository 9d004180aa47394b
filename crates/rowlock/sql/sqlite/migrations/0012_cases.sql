-- Cases that failed alike, whose they are, and what was found out about them. Workers name the error of a case within
-- seconds: until then it is null.
alter table rowlock_case_file add column error_no integer;
alter table rowlock_case_file add column owner text;
alter table rowlock_case_file add column note text;
create index rowlock_case_file_error on rowlock_case_file (error_no, id);

-- Each error that cases have or had: their reasons without what differs from job to job.
create table rowlock_case_error (
  no integer primary key,
  error text not null,
  first_seen integer not null,
  last_seen integer not null,
  seen integer not null
) strict;

-- One verb more: it closes a case for good, and its job is finished, as cancelled. What it has stopped goes on.
drop trigger rowlock_verb_unknown;
create trigger rowlock_verb_unknown instead of insert on rowlock_verb
when new.verb is null or new.verb not in ('delay', 'run now', 'cancel', 'retire', 'close')
begin
  select raise(abort, 'RL011: no such verb; there are delay, run now, cancel, retire and close');
end;

create trigger rowlock_verb_close instead of insert on rowlock_verb when new.verb = 'close'
begin
  select case
    when new.actor is null then raise(abort, 'RL011: say who does it')
    when not exists (select 1 from rowlock_job j where j.id = new.id) then raise(abort, 'RL010: no such job')
    when not exists (select 1 from rowlock_case_file c where c.id = new.id) then raise(abort, 'RL011: the job is no case')
  end;
  insert into rowlock_outcome (id, epoch, worker, attempt, outcome, started_at, ended_at, error)
  select
    c.id, c.epoch + 1, 0, c.attempt, 'cancelled', coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000), coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000),
    'closed by ' || new.actor || coalesce(': ' || new.reason, '')
  from rowlock_case_file c where c.id = new.id;
  insert into rowlock_audit (at, actor, verb, id, detail, before, after)
  values (coalesce(new.now, cast(round(unixepoch('subsec') * 1000) as integer) * 1000), new.actor, 'close', new.id, new.reason, 'case', 'finished');
  delete from rowlock_case_file where id = new.id;
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
