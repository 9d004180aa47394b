-- One row per ended attempt, whatever the end. Append-only. Row numbers rise with time, and pruning follows them. The
-- unique index refuses a second end of the same attempt, whatever else goes wrong.
create table rowlock_outcome (
  id integer not null,
  epoch integer not null,
  worker integer not null,
  attempt integer not null,
  outcome text not null check (outcome in ('done', 'retried', 'deferred', 'released', 'retired', 'cancelled', 'lost')),
  started_at integer not null,
  ended_at integer not null,
  error text,
  result text
) strict;

create unique index rowlock_outcome_id on rowlock_outcome (id, epoch);
