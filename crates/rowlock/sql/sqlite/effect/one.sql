-- Returns one effect by its number.
-- Index: rowlock_effect by no, rowlock_lease by id, rowlock_job by id.
select
  v.no, v.id, v.kind, v.queue, v.name, v.key, v.state, v.policy, v.tries, v.begun_at, v.deadline_at, v.ended_at,
  v.reply, v.error, v.resolved_by
from rowlock_effects v where v.no = ?1
