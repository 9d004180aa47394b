-- Removes groups that nobody is in. A statement of its own: its snapshot must be newer than the locks of group/lock_empty.sql.
-- Index: job_group_pkey, waiting_group.
delete from rowlock.job_group g
where g.no = any ($1::bigint[]) and g.vacant and not g.paused
  and not exists (select from rowlock.waiting w where w.group_no = g.no)
returning g.no
