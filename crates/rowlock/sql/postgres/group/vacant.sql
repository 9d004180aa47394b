-- Locks vacant groups for the sweep, a bounded number from a given one on; skips groups that are locked.
-- Index: job_group_vacant.
-- The next round looks at the skipped groups again.
-- only here: SQLite leaves no group vacant.
select no from rowlock.job_group
where vacant and not paused and no > $2
order by no
limit $1
for no key update skip locked
