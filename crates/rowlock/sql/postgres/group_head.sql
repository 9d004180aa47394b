-- Which job's turn it is in a group; none where it is vacant.
-- Index: job_group_pkey.
select head from rowlock.job_group where no = $1
