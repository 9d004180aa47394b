-- Makes untriggered jobs in ready due now, if the given uid is theirs.
-- Index: rowlock_ready by id, rowlock_job by id.
-- It returns which jobs, and how often each was claimed before.
update rowlock_ready set due_at = ?2
where due_at = ?3
  and id in (
    select j.id from json_each(?1) a cross join rowlock_job j on j.id = a.value ->> 'id' and j.uid = a.value ->> 'uid'
  )
returning id, epoch
