-- Logs how attempts ended whose jobs are finished, only if the token still holds; returns the tokens that hold.
-- Index: rowlock_lease by id; writes rowlock_outcome_id. settle/gone.sql then deletes the leases.
-- only here: PostgreSQL does so inside rowlock.end_leases.
insert into rowlock_outcome (id, epoch, worker, attempt, outcome, started_at, ended_at, error, result)
select
  l.id, l.epoch, l.worker, l.attempt, s.value ->> 'outcome', l.claimed_at, ?2, s.value ->> 'error', s.value ->> 'result'
from jsonb_each(?1) s
cross join rowlock_lease l on l.id = s.value ->> 'id' and l.epoch = s.value ->> 'epoch' and l.worker = s.value ->> 'worker'
returning id, epoch, worker
