-- Jobs that are due or scheduled. The table is narrow, because a row is written and removed once per attempt. The id is
-- the row's number in the table, so it needs no separate index.
create table rowlock_ready (
  id integer primary key,
  queue_no integer not null,
  kind_no integer not null,
  alone integer not null check (alone in (0, 1)),
  priority integer not null,
  due_at integer not null,
  epoch integer not null check (epoch >= 0),
  attempt integer not null check (attempt >= 0),
  attempts_max integer not null
) strict;

create unique index rowlock_ready_order on rowlock_ready (queue_no, kind_no, alone, priority, due_at, id);
