-- What operators did to jobs.
create table rowlock.audit (
  no bigint generated always as identity primary key,
  at timestamptz not null default clock_timestamp(),
  actor text not null,
  verb text not null,
  id bigint not null,
  detail text,
  jobs bigint not null default 1,
  before text,
  after text
);

create index audit_id on rowlock.audit (id);
