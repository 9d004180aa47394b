-- Closes a case whose job went back to ready.
-- Index: rowlock_case_file by id. Last of the statements of a reopen: the others read the case.
delete from rowlock_case_file where id = ?1
