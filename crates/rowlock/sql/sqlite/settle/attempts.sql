-- Records how attempts ended, only if the token still holds.
-- Index: rowlock_lease by id; writes rowlock_outcome_id, rowlock_ready_order. All inside the trigger rowlock_end_lease.
insert into rowlock_end (id, outcome, place, delay_us, error, result, now)
select
  l.id, s.value ->> 'outcome', s.value ->> 'place', s.value ->> 'delay_us', s.value ->> 'error', s.value ->> 'result', ?2
from jsonb_each(?1) s
cross join rowlock_lease l on l.id = s.value ->> 'id' and l.epoch = s.value ->> 'epoch' and l.worker = s.value ->> 'worker'
