-- What operators set at run time, such as the percentage of a rollout.
create table rowlock.setting (
  name text primary key,
  value text not null,
  changed_at timestamptz not null,
  changed_by text not null
);
