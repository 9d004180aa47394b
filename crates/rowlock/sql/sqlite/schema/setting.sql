-- What operators set at run time, such as the percentage of a rollout.
create table rowlock_setting (
  name text primary key,
  value text not null,
  changed_at integer not null,
  changed_by text not null
) strict;
