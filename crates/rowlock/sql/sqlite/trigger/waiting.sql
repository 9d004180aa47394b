-- Makes jobs that stand untriggered in waiting due when their wait is over, where the uid is theirs; says which, and how often each was claimed before.
-- Index: rowlock_waiting by id, rowlock_job by id.
-- no twin: postgresql does both in trigger/jobs.sql.
update rowlock_waiting set due_at = ?2
where due_at = ?3
  and id in (
    select j.id from json_each(?1) a cross join rowlock_job j on j.id = a.value ->> 'id' and j.uid = a.value ->> 'uid'
  )
returning id, epoch
