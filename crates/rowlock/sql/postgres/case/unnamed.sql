-- Lists cases whose error has no name yet, oldest first; skips those that another worker is naming.
-- Index: case_file_error.
select id, reason, retired_at from rowlock.case_file where error_no is null order by error_no, id limit $1 for update skip locked
