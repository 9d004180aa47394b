-- Locks those of these groups that are still vacant, so that nobody can join them; where somebody is about to, the next round looks again.
-- Index: job_group_pkey.
-- no twin: sqlite removes a group with its last job.
select no from rowlock.job_group
where no = any ($1::bigint[]) and vacant and not paused
order by no
for update skip locked
