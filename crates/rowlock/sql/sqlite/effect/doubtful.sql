-- Lists the effects in doubt, the longest in doubt first; an effect whose call is under way is not in doubt.
-- Index: rowlock_effect_doubt, rowlock_effect by no, rowlock_lease by id, rowlock_job by id.
select
  v.no, v.id, v.kind, v.queue, v.name, v.key, v.state, v.policy, v.tries, v.begun_at, v.deadline_at, v.ended_at,
  v.reply, v.error, v.resolved_by
from rowlock_effect e join rowlock_effects v on v.no = e.no
where e.state in ('open', 'uncertain') and v.state = 'uncertain'
order by e.begun_at limit +?1
