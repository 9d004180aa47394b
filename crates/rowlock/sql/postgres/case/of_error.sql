-- Open cases of an error that were retired until then, oldest first.
-- Index: case_file_error.
select id from rowlock.case_file where error_no = $1 and retired_at <= $2 order by id limit $3
