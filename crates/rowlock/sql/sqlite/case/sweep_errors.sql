-- Removes errors that no case has any more and that were last seen before the given time.
-- Index: rowlock_case_error, all of it (errors are few); rowlock_case_file_error.
delete from rowlock_case_error
where last_seen < ?1 and not exists (select 1 from rowlock_case_file c where c.error_no = rowlock_case_error.no)
