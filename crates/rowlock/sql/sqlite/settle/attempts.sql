-- Logs how attempts ended, only where the token still holds; a token that does not come back has lost its lease.
-- Index: rowlock_lease by id; writes rowlock_outcome_id. The lease itself goes last (settle/gone.sql): the statements between read it.
insert into rowlock_outcome (id, epoch, worker, attempt, outcome, started_at, ended_at, error, result)
select
  l.id, l.epoch, l.worker, l.attempt, s.value ->> 'outcome', l.claimed_at, ?2, s.value ->> 'error', s.value ->> 'result'
from jsonb_each(?1) s
cross join rowlock_lease l on l.id = s.value ->> 'id' and l.epoch = s.value ->> 'epoch' and l.worker = s.value ->> 'worker'
returning id, epoch, worker
