-- Gives the job of a case another payload, and keeps the old one in the audit; whether there was such a case.
-- Index: case_file_pkey, job_pkey, inside rowlock.edit_case.
select rowlock.edit_case($1, $2::json, $3)
