-- A retired job, open for a decision. The history is copied into the case, so that it outlives the outcome log.
create table rowlock.case_file (
  id bigint primary key,
  epoch bigint not null,
  attempt int not null,
  attempts_max int not null,
  queue_no bigint not null,
  kind_no bigint not null,
  priority smallint not null,
  reason text not null,
  retired_at timestamptz not null,
  history jsonb not null,
  error_no bigint,
  owner text,
  note text
);

create index case_file_error on rowlock.case_file (error_no, id);

-- Each error that cases have or had: the reason without the parts that differ from job to job.
create table rowlock.case_error (
  no bigint primary key,
  error text not null,
  first_seen timestamptz not null,
  last_seen timestamptz not null,
  seen bigint not null
);
