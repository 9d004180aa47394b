-- Puts the jobs whose bodies were just inserted into ready; a due time is never before the clock.
-- Index: none read; writes rowlock_ready_order. Runs right after enqueue/jobs.sql, so the newest ids are those jobs.
-- only here: PostgreSQL gives places inside enqueue/jobs.sql.
insert into rowlock_ready (id, queue_no, kind_no, alone, priority, due_at, epoch, attempt, attempts_max)
select
  (select seq from sqlite_sequence where name = 'rowlock_job') - json_array_length(?1) + 1 + d.key,
  d.value ->> 'queue_no', d.value ->> 'kind_no', 0, d.value ->> 'priority',
  max(coalesce(d.value ->> 'due_us', ?2 + (d.value ->> 'delay_us')), ?2), 0, 0, d.value ->> 'attempts_max'
from jsonb_each(?1) d
