-- Makes untriggered jobs in waiting due when their wait is over, if the given uid is theirs.
-- Index: rowlock_waiting by id, rowlock_job by id.
-- It returns which jobs, and how often each was claimed before.
-- only here: PostgreSQL does both in trigger/jobs.sql.
update rowlock_waiting set due_at = ?2
where due_at = ?3
  and id in (
    select j.id from json_each(?1) a cross join rowlock_job j on j.id = a.value ->> 'id' and j.uid = a.value ->> 'uid'
  )
returning id, epoch
