-- One row per ended attempt: done, retried, deferred, released, retired, cancelled or lost. Append-only. There is no
-- check constraint for these words: the server would parse it for every statement, which is half of the time of a
-- single insert.
create table rowlock.outcome (
  id bigint not null,
  epoch bigint not null,
  worker bigint not null,
  attempt int not null,
  outcome text not null,
  started_at timestamptz not null,
  ended_at timestamptz not null,
  error text,
  result json
) partition by range (ended_at);

create table rowlock.outcome_rest partition of rowlock.outcome default;

create index outcome_id on rowlock.outcome (id, epoch);
