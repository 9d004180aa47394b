-- Puts the jobs just taken under this worker's lease: raises the epoch and counts the attempt.
-- Index: none read; writes rowlock_lease.
-- only here: PostgreSQL writes the lease inside claim/take.sql.
insert into rowlock_lease (id, epoch, worker, attempt, attempts_max, queue_no, kind_no, alone, priority, claimed_at)
select
  t.value ->> 'id', t.value ->> 'epoch', ?2, t.value ->> 'attempt', t.value ->> 'attempts_max', t.value ->> 'queue_no',
  t.value ->> 'kind_no', t.value ->> 'alone', t.value ->> 'priority', ?3
from jsonb_each(?1) t
