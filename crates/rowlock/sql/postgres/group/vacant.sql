-- Locks vacant groups for the sweep, a bounded number from one on; those that somebody holds fall to the next round.
-- Index: job_group_vacant.
-- no twin: sqlite leaves no group vacant.
select no from rowlock.job_group
where vacant and not paused and no > $2
order by no
limit $1
for no key update skip locked
