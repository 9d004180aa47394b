-- Jobs that are due or scheduled. The table is narrow, because a row is written and removed once per attempt.
create table rowlock.ready (
  queue_no bigint not null,
  kind_no bigint not null,
  alone boolean not null,
  priority smallint not null,
  due_at timestamptz not null,
  id bigint not null,
  epoch bigint not null,
  attempt int not null,
  attempts_max int not null
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);

create unique index ready_order on rowlock.ready (queue_no, kind_no, alone, priority, due_at, id);

create unique index ready_id on rowlock.ready (id);
