-- A job that a worker holds. The token is (id, epoch, worker).
create table rowlock.lease (
  id bigint primary key,
  epoch bigint not null,
  worker bigint not null,
  attempt int not null,
  attempts_max int not null,
  queue_no bigint not null,
  kind_no bigint not null,
  alone boolean not null,
  priority smallint not null,
  claimed_at timestamptz not null
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
