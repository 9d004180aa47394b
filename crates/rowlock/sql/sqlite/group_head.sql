-- Which job's turn it is in a group; none where it is paused without one.
-- Index: rowlock_job_group by no.
select head from rowlock_job_group where no = ?1
