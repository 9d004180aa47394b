-- Changes the payload of a case's job.
-- Index: rowlock_case_file by id, rowlock_job by id.
update rowlock_job set payload = ?2 where id = ?1 and exists (select 1 from rowlock_case_file c where c.id = ?1)
