-- Inserts the bodies of jobs; ids rise in input order.
-- Index: none read; writes rowlock_job, rowlock_job_in_group. SQLite cannot write two tables in one statement.
insert into rowlock_job (
  id, uid, kind, version, queue, priority, attempts_max, payload, tags, chain, position, expires_at, if_retired, trace, created_at,
  waits_for, in_group, group_no, group_stops
)
select
  (select coalesce(max(seq), 0) from sqlite_sequence where name = 'rowlock_job') + 1 + d.key,
  d.value ->> 'uid', d.value ->> 'kind', d.value ->> 'version', d.value ->> 'queue', d.value ->> 'priority',
  d.value ->> 'attempts_max', d.value ->> 'payload', d.value ->> 'tags', d.value ->> 'chain', d.value ->> 'position',
  d.value ->> 'expires_us', d.value ->> 'if_retired', d.value ->> 'trace', ?2, d.value ->> 'waits_for', d.value ->> 'in_group',
  d.value ->> 'group_no', d.value ->> 'group_stops'
from jsonb_each(?1) d
returning id
