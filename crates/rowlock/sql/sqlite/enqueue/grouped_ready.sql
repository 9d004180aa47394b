-- Puts the heads of groups among the jobs just inserted into ready; a due time is never before the clock.
-- Index: rowlock_job_group by no; writes rowlock_ready_order. Runs after enqueue/grouped_head.sql, which sets heads.
-- only here: PostgreSQL gives places inside enqueue/jobs.sql.
insert into rowlock_ready (id, queue_no, kind_no, alone, priority, due_at, epoch, attempt, attempts_max)
select
  g.head, d.value ->> 'queue_no', d.value ->> 'kind_no', 0, d.value ->> 'priority',
  max(coalesce(d.value ->> 'due_us', ?2 + (d.value ->> 'delay_us')), ?2), 0, 0, d.value ->> 'attempts_max'
from jsonb_each(?1) d
cross join rowlock_job_group g on g.no = d.value ->> 'group_no'
where g.head = (select seq from sqlite_sequence where name = 'rowlock_job') - json_array_length(?1) + 1 + d.key
