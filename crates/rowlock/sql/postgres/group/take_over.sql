-- Makes jobs to come the heads of vacant groups, where nobody waits and nobody else is at it: the sweep will see to those.
-- Index: job_group_pkey, in sorted order; waiting_group. What is locked and not taken must be let go: a lock on it would keep the turn from being passed on.
-- no twin: sqlite leaves no group vacant.
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
