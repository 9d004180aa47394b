-- Locks those of these groups that are still vacant, so that no job can join them.
-- Index: job_group_pkey.
-- If a transaction is about to add a job to a group, the next round looks at the group again.
-- only here: SQLite removes a group with its last job.
select no from rowlock.job_group
where no = any ($1::bigint[]) and vacant and not paused
order by no
for update skip locked
