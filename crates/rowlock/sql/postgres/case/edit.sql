-- Changes the payload of a case's job, and keeps the old one in the audit; says whether there was such a case.
-- Index: case_file_pkey, job_pkey, inside rowlock.edit_case.
select rowlock.edit_case($1, $2::json, $3)
