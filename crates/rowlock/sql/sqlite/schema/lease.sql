-- A job that a worker holds. The token is (id, epoch, worker).
create table rowlock_lease (
  id integer primary key,
  epoch integer not null,
  worker integer not null,
  attempt integer not null,
  attempts_max integer not null,
  queue_no integer not null,
  kind_no integer not null,
  alone integer not null check (alone in (0, 1)),
  priority integer not null,
  claimed_at integer not null
) strict;
