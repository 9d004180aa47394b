-- A retired job, open for a decision. The history is copied into the case, so that it outlives the outcome log.
create table rowlock_case_file (
  id integer primary key,
  epoch integer not null,
  attempt integer not null,
  attempts_max integer not null,
  queue_no integer not null,
  kind_no integer not null,
  priority integer not null,
  reason text not null,
  retired_at integer not null,
  history text not null check (json_valid(history)),
  error_no integer,
  owner text,
  note text
) strict;

create index rowlock_case_file_error on rowlock_case_file (error_no, id);

-- Each error that cases have or had: the reason without the parts that differ from job to job.
create table rowlock_case_error (
  no integer primary key,
  error text not null,
  first_seen integer not null,
  last_seen integer not null,
  seen integer not null
) strict;
