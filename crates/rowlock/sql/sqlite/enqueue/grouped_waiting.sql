-- Puts the other jobs just inserted into waiting, behind the head of their group.
-- Index: rowlock_job_group by no; writes rowlock_waiting_group. Runs after enqueue/grouped_head.sql, which sets heads.
-- only here: PostgreSQL gives places inside enqueue/jobs.sql.
insert into rowlock_waiting (
  id, queue_no, kind_no, priority, due_at, epoch, attempt, attempts_max, limit_ends, since, group_no
)
select
  (select seq from sqlite_sequence where name = 'rowlock_job') - json_array_length(?1) + 1 + d.key,
  d.value ->> 'queue_no', d.value ->> 'kind_no', d.value ->> 'priority',
  max(coalesce(d.value ->> 'due_us', ?2 + (d.value ->> 'delay_us')), ?2), 0, 0, d.value ->> 'attempts_max', 'cancelled', ?2, g.no
from jsonb_each(?1) d
cross join rowlock_job_group g on g.no = d.value ->> 'group_no'
where g.head is not (select seq from sqlite_sequence where name = 'rowlock_job') - json_array_length(?1) + 1 + d.key
