-- Lists the effects in doubt, the longest in doubt first; an effect whose call is under way is not in doubt.
-- Index: effect_doubt, effect_pkey, lease_pkey, job_pkey.
select
  v.no, v.id, v.kind, v.queue, v.name, v.key, v.state, v.policy, v.tries, v.begun_at, v.deadline_at, v.ended_at,
  v.reply::text as reply, v.error, v.resolved_by
from rowlock.effect e join rowlock.effects v on v.no = e.no
where e.state in ('open', 'uncertain') and v.state = 'uncertain'
order by e.begun_at limit $1
