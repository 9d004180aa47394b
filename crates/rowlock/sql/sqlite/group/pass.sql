-- Passes the turn of groups on, if their head is still the given one: to the smallest job behind it, or to none.
-- Index: rowlock_job_group by no, rowlock_waiting_group.
update rowlock_job_group as g
set head = (select min(w.id) from rowlock_waiting w where w.group_no = g.no and g.paused = 0)
where g.no in (
  select u.value ->> 'no' from json_each(?1) u
  cross join rowlock_job_group x on x.no = u.value ->> 'no' and x.head is u.value ->> 'head'
)
