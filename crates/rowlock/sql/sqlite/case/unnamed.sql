-- Lists cases whose error has no name yet, oldest first.
-- Index: rowlock_case_file_error.
select id, reason, retired_at from rowlock_case_file where error_no is null order by error_no, id limit +?1
