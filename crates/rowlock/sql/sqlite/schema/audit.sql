-- What operators did to jobs.
create table rowlock_audit (
  no integer primary key autoincrement,
  at integer not null,
  actor text not null,
  verb text not null,
  id integer not null,
  detail text,
  jobs integer not null default 1,
  before text,
  after text
) strict;

create index rowlock_audit_id on rowlock_audit (id);
