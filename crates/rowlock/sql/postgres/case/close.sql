-- Closes a case for good.
-- Index: case_file_pkey, job_pkey, inside rowlock.close_case.
select rowlock.close_case($1, $2, $3)
