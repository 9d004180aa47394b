-- Puts settled jobs that will be tried again back to ready; a deferred or released attempt is given back, and one released unrun stays to be claimed alone.
-- Index: rowlock_lease by id; writes rowlock_ready_order.
-- no twin: postgresql puts it back inside settle/attempts.sql.
insert into rowlock_ready (id, queue_no, kind_no, alone, priority, due_at, epoch, attempt, attempts_max)
select
  l.id, l.queue_no, l.kind_no, s.value ->> 'alone' or (l.alone and s.value ->> 'outcome' = 'released'), l.priority, ?2 + (s.value ->> 'delay_us'), l.epoch,
  l.attempt - (s.value ->> 'outcome' in ('deferred', 'released')), l.attempts_max
from jsonb_each(?1) s
cross join rowlock_lease l on l.id = s.value ->> 'id' and l.epoch = s.value ->> 'epoch' and l.worker = s.value ->> 'worker'
where s.value ->> 'place' = 'ready'
