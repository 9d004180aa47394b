-- Puts the jobs just inserted into waiting; the earlier of time limit and expiry says when the wait ends, and how.
-- Index: none read; writes rowlock_waiting_name, rowlock_waiting_limit. Runs right after enqueue/jobs.sql, so the
-- newest ids belong to these jobs.
-- only here: PostgreSQL gives places inside enqueue/jobs.sql.
insert into rowlock_waiting (
  id, name, queue_no, kind_no, priority, due_at, epoch, attempt, attempts_max, limit_at, limit_ends, since
)
select
  (select seq from sqlite_sequence where name = 'rowlock_job') - json_array_length(?1) + 1 + d.key,
  d.value ->> 'waits_for', d.value ->> 'queue_no', d.value ->> 'kind_no', d.value ->> 'priority',
  max(coalesce(d.value ->> 'due_us', ?2 + (d.value ->> 'delay_us')), ?2), 0, 0, d.value ->> 'attempts_max',
  coalesce(min(?2 + (d.value ->> 'limit_us'), d.value ->> 'expires_us'), ?2 + (d.value ->> 'limit_us'), d.value ->> 'expires_us'),
  case
    when d.value ->> 'expires_us' <= coalesce(?2 + (d.value ->> 'limit_us'), d.value ->> 'expires_us') then 'cancelled'
    else 'retired'
  end,
  ?2
from jsonb_each(?1) d
