-- Removes groups that have no job.
-- Index: job_group_pkey, waiting_group.
-- It runs after group/lock_empty.sql, because its snapshot must be newer than the locks taken there.
delete from rowlock.job_group g
where g.no = any ($1::bigint[]) and g.vacant and not g.paused
  and not exists (select from rowlock.waiting w where w.group_no = g.no)
returning g.no
