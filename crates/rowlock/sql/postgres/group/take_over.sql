-- Makes new jobs the heads of vacant groups, if no job waits there and no other transaction has the group locked.
-- Index: job_group_pkey, in sorted order; waiting_group. The caller must release a lock on a group that was not taken.
-- Otherwise the lock would block passing the turn on.
-- The sweep fills the other vacant groups.
-- only here: SQLite leaves no group vacant.
with locked as materialized (
  select g.no, u.id
  from unnest($1::bigint[], $2::bigint[]) as u (no, id) join rowlock.job_group g on g.no = u.no
  where g.vacant and not g.paused and not exists (select from rowlock.waiting w where w.group_no = u.no)
  order by g.no
  for no key update of g skip locked
)
update rowlock.job_group g set head = l.id
from locked l
where g.no = any (array[l.no])
returning g.no
