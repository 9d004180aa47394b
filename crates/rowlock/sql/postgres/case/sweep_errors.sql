-- Removes errors that no case has any more and that were last seen before the given time.
-- Index: case_error_pkey, all of it (errors are few); case_file_error.
delete from rowlock.case_error
where last_seen < $1 and not exists (select from rowlock.case_file c where c.error_no = rowlock.case_error.no)
